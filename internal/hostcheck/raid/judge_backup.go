package raid

import (
	"fmt"

	"plugpull/internal/hostcheck"
)

// controller judges what is not of one volume. Trouble with the backup is critical while a volume relies on
// it, and a warning else.
func (j *judge) controller() {
	var list findings
	name := j.c.Name()
	if j.c.Incomplete != "" {
		list.add(hostcheck.Unknown, "raid_output_incomplete", "%s: not everything could be read: %s", name, j.c.Incomplete)
	}
	if len(j.c.Volumes) == 0 && j.c.Incomplete == "" {
		list.add(hostcheck.OK, "raid_no_volumes", "%s: has no volumes", name)
	}
	for _, f := range j.c.Rejected {
		list.add(hostcheck.Warning, "raid_gauge_impossible", "%s: %q says %q, which cannot be and is not used; the backup's gauge is not to be trusted", name, f.Key, f.Value)
	}
	relied := hostcheck.Warning
	for _, v := range j.c.Volumes {
		if v.CurrentPolicy.caches() {
			relied = hostcheck.Critical
		}
	}
	j.state(&list, name, relied)
	j.limits(&list, name, relied)
	j.out.Findings = append(j.out.Findings, list...)
}

func (j *judge) state(list *findings, name string, relied hostcheck.Level) {
	b := j.c.Backup
	named := false
	add := func(l hostcheck.Level, code, format string, args ...any) {
		named = true
		list.add(l, code, "%s: "+format, append([]any{name}, args...)...)
	}
	switch {
	case b.Present == hostcheck.No && relied == hostcheck.Critical:
		add(relied, "raid_backup_missing", "there is no backup unit, and writes are cached")
	case b.Present == hostcheck.No:
		add(hostcheck.OK, "raid_backup_none", "there is no backup unit, so writes must not be cached")
	case b.ReplacementRequired == hostcheck.Yes:
		add(relied, "raid_backup_replace", "the backup has to be replaced%s; plan it before the cache is turned off without a word", quoted(b.Status))
	}
	learning := b.Learning == hostcheck.Yes
	if b.CapacityLow == hostcheck.Yes && !learning {
		add(relied, "raid_backup_capacity_low", "the backup's capacity is low%s; replace it", quoted(b.Status))
	}
	if b.Good == hostcheck.No && !named {
		add(relied, "raid_backup_bad", "the backup is not good%s; replace it", quoted(b.Status))
	}
	if b.AboutToFail == hostcheck.Yes {
		add(hostcheck.Warning, "raid_backup_failing", "the backup is about to fail; replace it")
	}
	if learning && b.Present != hostcheck.No {
		add(j.learnLevel(), "raid_learn_cycle", "the backup is in its learn cycle; write caching may be off until it ends")
	}
	if b.Hot == hostcheck.Yes {
		add(hostcheck.Warning, "raid_backup_hot", "the backup is too hot, which wears it out; look at the cooling")
	}
	switch {
	case b.Good == hostcheck.Yes && !named && j.c.Incomplete == "":
		add(hostcheck.OK, "raid_backup_good", "%s", j.backupWords())
	case b.Good == hostcheck.NotKnown && b.Present != hostcheck.No && !learning && !j.idle():
		add(hostcheck.Unknown, "raid_backup_unknown", "the tool does not say whether the backup is good%s; ask it by hand as root", quoted(b.Status))
	}
}

// idle reports whether the volumes are known and none caches writes now: the backup is not needed then.
func (j *judge) idle() bool {
	for _, v := range j.c.Volumes {
		if v.CurrentPolicy != WriteThrough {
			return false
		}
	}
	return len(j.c.Volumes) > 0
}

// limits compares with what the site asks for.
func (j *judge) limits(list *findings, name string, relied hostcheck.Level) {
	b := j.c.Backup
	if b.Present == hostcheck.No {
		return
	}
	if least := j.o.MinCapacityPercent; least > 0 && b.CapacityPercent != nil && *b.CapacityPercent < least {
		list.add(hostcheck.Warning, "raid_backup_worn", "%s: a full charge of the backup holds %.0f %% of its design, less than the %.0f %% asked for; replace it",
			name, *b.CapacityPercent, least)
	}
	if j.o.MinHoldup <= 0 {
		return
	}
	switch {
	case b.Remaining != nil && *b.Remaining < j.o.MinHoldup:
		list.add(relied, "raid_holdup_short", "%s: the backup keeps the cache for %s, less than the %s asked for: a longer power cut loses acknowledged commits",
			name, *b.Remaining, j.o.MinHoldup)
	case b.Remaining == nil && relied == hostcheck.Critical && (b.Kind == Battery || b.Kind == ""):
		list.add(hostcheck.Unknown, "raid_holdup_unknown", "%s: the tool does not say for how long the backup keeps the cache; %s are asked for", name, j.o.MinHoldup)
	}
}

func perf(c Controller) []hostcheck.Perf {
	var list []hostcheck.Perf
	add := func(name string, v *float64) {
		if v != nil {
			list = append(list, hostcheck.Perf{Name: name, Label: fmt.Sprintf("%s_c%d", c.Tool, c.Number), Value: *v})
		}
	}
	b := c.Backup
	add("raid_backup_charge_percent", b.ChargePercent)
	add("raid_backup_capacity_percent", b.CapacityPercent)
	if b.Remaining != nil {
		add("raid_backup_remaining_seconds", new(b.Remaining.Seconds()))
	}
	add("raid_backup_cycles_total", b.CycleCount)
	add("raid_backup_temperature_celsius", b.TemperatureCelsius)
	return list
}
