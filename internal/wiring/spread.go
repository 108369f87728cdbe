package wiring

import (
	"slices"
	"time"
)

// Spread is the least, the middle and the greatest of some times.
type Spread struct {
	Least  time.Duration `json:"least_ns"`
	Median time.Duration `json:"median_ns"`
	Most   time.Duration `json:"most_ns"`
}

// Jitter is how far the times lie apart.
func (s Spread) Jitter() time.Duration { return s.Most - s.Least }

func spread(times []time.Duration) Spread {
	if len(times) == 0 {
		return Spread{}
	}
	slices.Sort(times)
	return Spread{times[0], times[(len(times)-1)/2], times[len(times)-1]}
}

// Calibration is what cuts have shown of an outlet. Times count from the command; what no cut
// has is zero.
type Calibration struct {
	Cuts         int    `json:"cuts"`
	Acknowledged Spread `json:"acknowledged"`
	Off          Spread `json:"off_read_back"`
	// Dark is by the first unanswered question, an upper bound; Resolution is the
	// greatest distance of the two bounds.
	Dark       Spread        `json:"dark"`
	Resolution time.Duration `json:"resolution_ns"`
	// Early is how often the host went dark before the outlet read off, by at least the resolution, and
	// Late how often after: an outlet that reads off before the host is dark reports what its
	// relay was told, not what it did.
	Early int    `json:"dark_before_off"`
	Late  int    `json:"dark_after_off"`
	Back  Spread `json:"back_after_cut"`
}

// Calibrate puts cuts together.
func Calibrate(cuts []Cut) Calibration {
	c := Calibration{Cuts: len(cuts)}
	var ack, off, dark, back []time.Duration
	for _, cut := range cuts {
		from := cut.Result.Commanded
		if a := cut.Result.Acknowledged; a != 0 {
			ack = append(ack, a.Sub(from))
		}
		least, most := cut.Dark()
		dark = append(dark, most)
		c.Resolution = max(c.Resolution, most-least)
		back = append(back, cut.Back.Sub(from))
		o := cut.Result.Observed
		if o == 0 {
			continue
		}
		off = append(off, o.Sub(from))
		switch {
		case cut.FirstSilence < o:
			c.Early++
		case cut.LastAnswer > o:
			c.Late++
		}
	}
	c.Acknowledged, c.Off, c.Dark, c.Back = spread(ack), spread(off), spread(dark), spread(back)
	return c
}
