package probe

import (
	"plugpull/internal/hostcheck"
)

// speed reads the rate of a server that flushes at each commit, and whose flushes were not seen to be swallowed. It goes by the
// median: a few stalls, of other load or of a checkpoint, make a fast stack look slow.
func (i *reading) speed() {
	i.pace = 1 / i.r.Latency(50).Seconds()
	if i.pace > uneven*i.r.Rate() {
		i.add(hostcheck.OK, "uneven", "the commits were uneven: half of them take at most %s, and yet there were only %s a second; other load or stalls lie between, and what follows goes by the quick half",
			span(i.r.Latency(50), Style{}), rateText(i.r.Rate()))
	}
	if disk, ok := i.rotating(); ok {
		i.disk(disk)
		return
	}
	// The settings' flushes, not those that were counted: one of the latter can be of a journal, and empty.
	switch rate := i.pace * float64(i.f.per); {
	case rate <= hundreds:
		i.slow()
	case rate < thousands:
		i.add(hostcheck.Unknown, "between", "about a thousand flushes a second lies between what a medium does that is waited for and what a cache does: a fast SSD without a protected cache and a slow path to a cache look alike; "+
			"the drive's and the controller's cache state decide")
	default:
		i.fast("SSD or cache")
	}
}

// rotating returns the disk by which a rate is bounded: the fastest, so that none is called too fast wrongly. Only
// where every drive is known to turn.
func (i *reading) rotating() (Drive, bool) {
	var disk Drive
	for _, d := range i.e.Drives {
		if d.Rotational != hostcheck.Yes {
			return Drive{}, false
		}
		if d.RPM <= 0 {
			d.RPM = fastestDisk
		}
		if d.RPM > disk.RPM {
			disk = d
		}
	}
	return disk, len(i.e.Drives) > 0
}

func (i *reading) disk(d Drive) {
	bound := float64(d.RPM) / 60
	perCommit := bound / float64(i.f.per)
	half := ""
	if i.f.per == 2 {
		half = ", half of that with the binary log's flush"
	}
	if i.pace <= perCommit*tolerance {
		i.add(hostcheck.OK, "disk_waited_for", "%s is said to turn at most %d times a minute, and a commit that waits for its platter is made at most about once a turn, %s a second%s: half of the commits within %s fit a disk whose cache is off or flushed for each commit; "+
			"a controller's protected write cache, if there is meant to be one, is off or does not take these writes", d.Name, d.RPM, threeDigits(bound), half, span(i.r.Latency(50), Style{}))
		return
	}
	i.add(hostcheck.OK, "disk_outrun", "%s is said to turn at most %d times a minute, so that a commit that waits for its platter is made at most about %s times a second%s; half of the commits within %s means that something answers before the platter has them",
		d.Name, d.RPM, threeDigits(bound), half, span(i.r.Latency(50), Style{}))
	i.fast("controller's cache")
}

// slow: each commit waits for a medium.
func (i *reading) slow() {
	if all(i.e.Drives, func(d Drive) hostcheck.Tri { return not(d.Rotational) }) == hostcheck.Yes {
		i.add(hostcheck.OK, "medium_waited_for", "hundreds of flushes a second, or fewer, on an SSD: each waits for its flash, as it must where no capacitor protects its cache; a protected cache would answer thousands")
		return
	}
	i.add(hostcheck.OK, "medium_waited_for", "hundreds of flushes a second, or fewer: each waits for a medium, so no write cache answers them, or one that is flushed for each commit, as it must be where nothing protects it; "+
		"if a controller's protected write cache is meant to be on, it is off or does not take these writes")
}

// fast: something answers before a medium without a cache could. What it is decides whether that is good.
func (i *reading) fast(good string) {
	protected := all(i.e.Drives, func(d Drive) hostcheck.Tri { return d.Protected })
	volatile := all(i.e.Drives, func(d Drive) hostcheck.Tri { return not(d.Cache) }) == hostcheck.No
	through := i.writeThrough()
	switch {
	case protected == hostcheck.Yes:
		i.add(hostcheck.OK, "fast_protected", "the rate fits the write cache there, which is said to survive a power cut: a commit is safe in it as long as that stays true; watch its battery or capacitors with plugpull check")
	case through != "" && protected == hostcheck.No && volatile:
		i.add(hostcheck.Critical, "cache_not_flushed", "the kernel sends %s no flush, since its queue says write through, while its write cache is on and nothing protects it: acknowledged commits are lost in a power cut; "+
			"set its queue/write_cache to write back, or turn the drive's cache off", through)
	case through != "":
		i.add(hostcheck.Unknown, "fast_write_through", "the kernel sends %s no flush, since its queue says write through, so no count can show more: right for a %s that is protected or for none that is volatile, "+
			"and a loss at each power cut where somebody set it so on a drive with a volatile cache", through, good)
	case i.n >= mostReached && protected == hostcheck.No:
		i.add(hostcheck.Warning, "fast_unprotected", "the flushes reach %s and are answered faster than a medium without a protected cache is written, and the drive is said to have no protection: it may acknowledge flushes that it does not carry out; cut its power to know",
			i.at)
	case i.n >= mostReached:
		i.add(hostcheck.Unknown, "fast_flushed", "the flushes reach %s and are answered faster than a medium without a cache is written: a protected cache (capacitors, a battery) does that, and so does one that ignores flushes and loses what it acknowledged; "+
			"the rate cannot tell them apart", i.at)
	default:
		i.add(hostcheck.Unknown, "fast_unknown", "faster than a medium without a cache, with durable settings, which leaves three explanations: a protected write cache in a drive or controller, which is right; "+
			"a volatile one whose flushes a layer swallows (a mount without barriers, old LVM, a virtual machine with cache=unsafe); or a drive that ignores them; "+
			"the flush counters of the layers were not counted, and they tell the second from the others")
	}
}

// writeThrough names the lowest layer whose flushes the kernel leaves out, where nothing was counted on it.
func (i *reading) writeThrough() string {
	if len(i.e.Layers) == 0 {
		return ""
	}
	l := i.e.Layers[len(i.e.Layers)-1]
	if l.WriteCache != "write through" || l.counts() && *l.Flushes > 0 {
		return ""
	}
	return l.Name
}

// all is what is true of every drive: yes where each says yes, no where one says no.
func all(drives []Drive, of func(Drive) hostcheck.Tri) hostcheck.Tri {
	if len(drives) == 0 {
		return hostcheck.NotKnown
	}
	sum := hostcheck.Yes
	for _, d := range drives {
		switch of(d) {
		case hostcheck.No:
			return hostcheck.No
		case hostcheck.NotKnown:
			sum = hostcheck.NotKnown
		}
	}
	return sum
}

func not(t hostcheck.Tri) hostcheck.Tri {
	switch t {
	case hostcheck.Yes:
		return hostcheck.No
	case hostcheck.No:
		return hostcheck.Yes
	}
	return hostcheck.NotKnown
}
