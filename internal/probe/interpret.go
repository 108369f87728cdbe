package probe

import (
	"fmt"
	"strings"
	"time"

	"plugpull/internal/hostcheck"
)

// Evidence is what is known beside a rate. All of it may be missing.
type Evidence struct {
	// Settings are the server's, by name; nil: those that the result holds.
	Settings map[string]string
	// Drives hold the log that a commit waits for.
	Drives []Drive
	// Layers are the block devices under that log, upper ones first.
	Layers []Layer
	// Other is a probe of the same server with the loop on the other side of the network.
	Other *Result
	// Baseline is an earlier probe to compare with.
	Baseline *Result
}

// Drive is what a drive is said to be.
type Drive struct {
	Name       string
	Rotational hostcheck.Tri // of queue/rotational; some controllers and virtual machines say yes of everything
	RPM        int           // zero: not known
	Cache      hostcheck.Tri // a volatile write cache is on
	Protected  hostcheck.Tri // what is in it is saved when power is lost: capacitors, or a battery that is good
}

// Layer is a block device with the flushes that were counted on it during the probe.
type Layer struct {
	Name       string        // as in /sys/block
	WriteCache string        // queue/write_cache: "write back" or "write through"; empty: not known
	FUA        hostcheck.Tri // queue/fua: it takes writes that are durable by themselves
	// Flushes is by how much field 16 of /sys/block/NAME/stat grew between the calls of Options.Around; nil: it was not read.
	Flushes *uint64
}

// counts reports whether the flushes of a layer were counted. The kernel counts them where it makes a request
// of a flush: device mapper and md pass them on without, and their count stays zero for ever.
func (l Layer) counts() bool {
	for _, prefix := range []string{"dm-", "md", "bcache", "zram"} {
		if strings.HasPrefix(l.Name, prefix) {
			return false
		}
	}
	return l.Flushes != nil
}

const (
	// few is how many commits a probe must have made before its rate is worth a word.
	few = 20
	// hundreds and thousands are flushes a second: up to the one a medium is waited for, from the other on
	// something answers before a disk's could.
	hundreds, thousands = 700.0, 1500.0
	// tolerance is by how much a commit may beat a full turn of a disk: where the next record lies is chance.
	tolerance = 1.5
	// uneven is how many times quicker than the mean the median is where the difference is worth a word.
	uneven = 2
	// fastestDisk is the most turns a minute of a disk whose own is not known.
	fastestDisk = 15000
	// mostReached and nothingReached are flushes a commit at a layer: with one client each commit has its own.
	mostReached, nothingReached = 0.5, 0.01
)

// Interpret says what a rate means, in the light of what else is known: sentences without a full stop, in the order in
// which they are to be read. A level is OK for what fits together, WARNING and CRITICAL for what can lose a commit, and
// UNKNOWN for a rate that has more than one explanation. The last one is always that the rate alone misleads.
func Interpret(r *Result, e Evidence) []hostcheck.Finding {
	i := &reading{r: r, e: e}
	if e.Settings == nil {
		i.e.Settings = r.Settings
	}
	if r.Commits == 0 || r.Rate() <= 0 {
		i.add(hostcheck.Unknown, "no_commits", "no commit was made, so there is nothing to say of the stack")
		return i.out
	}
	if r.Commits < few {
		i.add(hostcheck.Unknown, "few_commits", "only %d commits were made: let the probe run longer before its rate is believed", r.Commits)
	}
	if i.durable() {
		i.flushTime()
		if !i.swallowed() {
			i.speed()
		}
	}
	i.network()
	i.baseline()
	i.add(hostcheck.OK, "rate_misleads", "the rate alone misleads: a fast stack may be well protected or lose every commit of the last seconds, and a slow one may still lose some; "+
		"plugpull check reads what the layers say of their caches, and only plugpull run, which cuts the power, shows what survives")
	return i.out
}

// reading is one interpretation.
type reading struct {
	r  *Result
	e  Evidence
	f  flushing
	n  float64 // flushes a commit at the lowest layers that were counted; 0: not counted
	at string  // where
	// pace is the commits a second that the median latency would allow.
	pace float64
	out  []hostcheck.Finding
}

func (i *reading) add(l hostcheck.Level, code, format string, args ...any) {
	i.out = append(i.out, hostcheck.Finding{Level: l, Code: code, Text: fmt.Sprintf(format, args...)})
}

// durable reports whether a commit waits for a flush, without which the rate says nothing of what is below.
func (i *reading) durable() bool {
	if i.r.Kind == KindFolder {
		i.f = flushing{known: true, per: 1}
		if i.r.InMemory {
			i.add(hostcheck.Unknown, "in_memory", "the folder lies in memory (%s), where a flush does nothing: the rate says nothing of any drive; name a folder on the drive in question", i.r.Version)
		}
		return !i.r.InMemory
	}
	i.f = flushesOf(i.e.Settings)
	switch {
	case len(i.f.never) > 0:
		i.add(hostcheck.Critical, "not_durable", "the server acknowledges a commit before it flushes it: %s; so the rate says nothing of the drive or its cache, and a power cut loses acknowledged commits; "+
			"set it, and probe again", strings.Join(i.f.never, ", "))
		return false
	case !i.f.known:
		i.add(hostcheck.Unknown, "settings_unknown", "the settings that decide whether a commit waits for a flush were not read, so the rate cannot be tied to the drive")
		return false
	}
	if i.f.binlog != "" {
		i.add(hostcheck.Warning, "binlog_not_flushed", "the binary log is on and not flushed at each commit: %s; the rate is that of the redo log alone, and after a power cut acknowledged commits can be rolled back", i.f.binlog)
	}
	if len(i.f.remote) > 0 {
		i.add(hostcheck.Unknown, "waits_for_others", "a commit may wait for other servers as well (%s), so the rate can be that of the network between them", strings.Join(i.f.remote, ", "))
	}
	return true
}

// flushTime says how long a flush takes, at most.
func (i *reading) flushTime() {
	for _, l := range i.e.Layers { // the lowest that counts has the last word
		if l.counts() {
			i.n, i.at = float64(*l.Flushes)/float64(i.r.Commits), l.Name
		}
	}
	limit := ""
	if i.r.Kind == KindClient {
		limit = ", the network and the server's own work included"
	}
	waits := "the settings let it wait for one flush at least"
	switch {
	case i.r.Kind == KindFolder:
		waits = "each is one fdatasync"
	case i.f.per == 2:
		waits = "the settings let it wait for two flushes, of the redo log and of the binary log"
	}
	// Not divided by what was counted: some of that is of others, and a commit did not wait for it.
	median := i.r.Latency(50)
	latency := span(median/time.Duration(i.f.per), Style{})
	if i.n >= mostReached {
		i.add(hostcheck.OK, "flush_latency", "half of the commits take at most %s%s; %s, and %s flushes a commit reached %s: its flush latency is at most about %s",
			span(median, Style{}), limit, waits, threeDigits(i.n), i.at, latency)
		return
	}
	i.add(hostcheck.OK, "flush_latency", "half of the commits take at most %s%s; %s: if the flushes reach a drive, its flush latency is at most about %s",
		span(median, Style{}), limit, waits, latency)
}

// swallowed finds flushes that a drive should have seen and did not, whatever the rate.
func (i *reading) swallowed() bool {
	found := false
	for _, l := range i.e.Layers {
		if !l.counts() || l.WriteCache != "write back" {
			continue
		}
		reached := float64(*l.Flushes) / float64(i.r.Commits)
		switch {
		case reached >= mostReached:
			continue
		case i.f.byWrite && l.FUA != hostcheck.No:
			i.add(hostcheck.Unknown, "flushed_by_write", "%s flushes a commit reached %s: the server makes its log durable by its writes (O_DSYNC), which %s may take as durable by themselves (FUA) and which are not counted; "+
				"only a power cut shows whether it keeps them", threeDigits(reached), l.Name, l.Name)
		case reached >= nothingReached:
			i.add(hostcheck.Warning, "flush_partial", "only %s flushes a commit reached %s, whose cache the kernel holds for volatile: a part of the commits was acknowledged without a flush; "+
				"look at the mount options and the layers above it", threeDigits(reached), l.Name)
		default:
			level := hostcheck.Critical
			if all(i.e.Drives, func(d Drive) hostcheck.Tri { return d.Protected }) == hostcheck.Yes {
				level = hostcheck.Warning
			}
			i.add(level, "flush_swallowed", "no flush reached %s while %s commits were acknowledged, and the kernel holds its cache for volatile: a layer above it swallows them, "+
				"such as a mount without barriers; what that cache held is lost in a power cut unless it is protected", l.Name, grouped(i.r.Commits))
		}
		found = true
	}
	return found
}

// network tells the network's share, from the loop outside and the loop inside the server.
func (i *reading) network() {
	outside, inside := i.r, i.e.Other
	if inside == nil || inside.Commits == 0 {
		return
	}
	if outside.Kind == KindInServer {
		outside, inside = inside, outside
	}
	if outside.Kind != KindClient || inside.Kind != KindInServer {
		return
	}
	share := 1 - outside.Rate()/inside.Rate()
	if share <= 0.02 {
		i.add(hostcheck.OK, "network_share", "the loop inside the server is no faster (%s commits/s, and %s from the client): the network costs nothing that can be seen beside a commit",
			rateText(inside.Rate()), rateText(outside.Rate()))
		return
	}
	per := outside.Took.Seconds()/float64(outside.Commits) - inside.Took.Seconds()/float64(inside.Commits)
	i.add(hostcheck.OK, "network_share", "the loop inside the server makes %s commits/s and the client %s: %.0f %% of the client's time, about %s a commit, is the network and the client",
		rateText(inside.Rate()), rateText(outside.Rate()), 100*share, span(time.Duration(per*1e9), Style{}))
}

func (i *reading) baseline() {
	if i.e.Baseline == nil {
		return
	}
	c, err := Compare(i.e.Baseline, i.r)
	if err != nil {
		i.add(hostcheck.Unknown, "baseline", "the baseline has no commit, so there is nothing to compare with")
		return
	}
	i.add(hostcheck.OK, "baseline", "%s", c.Text())
}
