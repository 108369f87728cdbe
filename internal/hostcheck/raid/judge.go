package raid

import (
	"fmt"
	"time"

	"plugpull/internal/hostcheck"
)

// Options are what a site asks of its controllers. The zero value asks for nothing that is not said by a
// tool.
type Options struct {
	// MinHoldup is the longest time without power that a cache has to outlive. 0: not asked.
	MinHoldup time.Duration
	// MinCapacityPercent is how much of its design a backup has to hold. 0: not asked.
	MinCapacityPercent float64
	// AcceptLearn counts a backup in its learn cycle as good.
	AcceptLearn bool
	// Member says what a drive behind the controller says of itself: its write cache, and whether that is saved
	// at a power loss; Why says what that rests on, or why it is not known. Nil: nothing.
	Member func(Disk) hostcheck.Cache
}

// Judgement is what is to be said of a controller.
type Judgement struct {
	Findings []hostcheck.Finding // of the controller and its backup
	Perf     []hostcheck.Perf
	Volumes  []VolumeJudgement // as in Controller.Volumes
}

// VolumeJudgement is what is to be said of a volume. Each has at least two findings: on the controller's
// cache, and on the caches of the members.
type VolumeJudgement struct {
	Findings []hostcheck.Finding
	Cache    hostcheck.Cache // of the controller, for this volume
	Members  hostcheck.Cache // of the member drives together
}

// Worst is the level that stands for the controller and all its volumes.
func (j Judgement) Worst() hostcheck.Level {
	var levels []hostcheck.Level
	for _, f := range j.Findings {
		levels = append(levels, f.Level)
	}
	for _, v := range j.Volumes {
		for _, f := range v.Findings {
			levels = append(levels, f.Level)
		}
	}
	return hostcheck.Worst(levels...)
}

// Judge reasons over one controller: policy, present state, backup and members' caches together. It asks
// nobody, apart from Options.Member.
func Judge(c Controller, o Options) Judgement {
	j := judge{c: c, o: o}
	for _, v := range c.Volumes {
		j.out.Volumes = append(j.out.Volumes, j.volume(v))
	}
	j.controller()
	j.out.Perf = perf(c)
	return j.out
}

type judge struct {
	c   Controller
	o   Options
	out Judgement
}

// findings is a list that is added to.
type findings []hostcheck.Finding

func (f *findings) add(l hostcheck.Level, code, format string, args ...any) {
	*f = append(*f, hostcheck.Finding{Level: l, Code: code, Text: fmt.Sprintf(format, args...)})
}

// learning reports whether the backup is in a learn cycle that is all that is the matter with it.
func (j *judge) learning() bool {
	return j.c.Backup.Learning == hostcheck.Yes && j.c.Backup.Good != hostcheck.No
}

func (j *judge) learnLevel() hostcheck.Level {
	if j.o.AcceptLearn {
		return hostcheck.OK
	}
	return hostcheck.Warning
}

// protected reports whether the cache is saved if power is lost now.
func (j *judge) protected() hostcheck.Tri {
	b := j.c.Backup
	switch {
	case b.Present == hostcheck.No || b.Good == hostcheck.No:
		return hostcheck.No
	case b.ReplacementRequired == hostcheck.Yes:
		return hostcheck.No
	case j.c.Incomplete != "":
		return hostcheck.NotKnown // a line that speaks against it may be what is missing
	case b.Good == hostcheck.Yes, j.learning() && j.o.AcceptLearn:
		return hostcheck.Yes
	}
	return hostcheck.NotKnown
}

func (j *judge) volume(v Volume) VolumeJudgement {
	now := v.CurrentPolicy
	if now == WriteBack && v.DefaultPolicy == ForcedWriteBack {
		now = ForcedWriteBack
	}
	var list findings
	switch {
	case now == PolicyNotKnown:
		list.add(hostcheck.Unknown, "raid_policy_unknown",
			"%s: the tool does not say whether writes are cached now%s; look at the controller's own settings", v.Label(), quoted(v.PolicyWords))
	case now.caches():
		j.writeBack(&list, v, now)
	default:
		j.writeThrough(&list, v)
	}
	out := VolumeJudgement{Cache: hostcheck.Cache{Protected: j.protected(), Why: "write policy " + now.String() + ", " + j.backupWords()}}
	if now != PolicyNotKnown {
		out.Cache.Volatile = hostcheck.Is(now.caches())
	}
	switch {
	case !now.caches() || out.Cache.Protected != hostcheck.NotKnown:
	case j.learning() && now == WriteBack && j.c.Incomplete == "":
		out.Cache.Protected = hostcheck.Yes // as the controller has it, which caches only with a backup that serves; there is a warning
	default:
		out.Cache.Volatile = hostcheck.NotKnown // whether a power cut empties it is what could not be told
	}
	out.Members = j.members(v)
	j.memberFindings(&list, v, out.Members)
	switch {
	case now.caches():
		out.Cache.Flushes = hostcheck.No // a protected cache answers a flush itself
	case now == WriteThrough && out.Members.Volatile == hostcheck.No:
		out.Cache.Flushes = hostcheck.Yes // nothing holds anything back
	}
	out.Findings = list
	return out
}

func (j *judge) writeBack(list *findings, v Volume, now Policy) {
	forced := ""
	if now == ForcedWriteBack {
		forced = ", forced also with a bad backup"
	}
	switch p := j.protected(); {
	case p == hostcheck.No && now == ForcedWriteBack:
		list.add(hostcheck.Critical, "raid_write_back_forced_unprotected",
			"%s: writes are cached by force and %s: a power cut loses acknowledged commits; set it to write-back only with a good backup, or to write-through",
			v.Label(), j.backupWords())
	case p == hostcheck.No:
		list.add(hostcheck.Critical, "raid_write_back_unprotected",
			"%s: writes are cached and %s: a power cut can lose acknowledged commits; set it to write-through until the backup is good",
			v.Label(), j.backupWords())
	case p == hostcheck.NotKnown && j.learning() && now == WriteBack && j.c.Incomplete == "":
		list.add(hostcheck.Warning, "raid_write_back_learning",
			"%s: writes are cached during a learn cycle of the backup, which may not hold a full charge now", v.Label())
	case p == hostcheck.NotKnown:
		list.add(hostcheck.Unknown, "raid_write_back_protection_unknown",
			"%s: writes are cached%s and it cannot be told whether the cache outlives a power cut: %s", v.Label(), forced, j.backupWords())
	case now == ForcedWriteBack:
		list.add(hostcheck.Warning, "raid_write_back_forced",
			"%s: writes are cached and protected now, but would be cached with a failed backup too; set it to write-back only with a good backup", v.Label())
	default:
		list.add(hostcheck.OK, "raid_write_back_protected", "%s: writes are cached and %s", v.Label(), j.backupWords())
	}
}

func (j *judge) writeThrough(list *findings, v Volume) {
	switch {
	case v.DefaultPolicy.caches() && j.learning():
		list.add(j.learnLevel(), "raid_write_through_learning",
			"%s: writes are not cached while the backup is in its learn cycle: slower, and nothing can be lost by it", v.Label())
	case v.DefaultPolicy.caches():
		list.add(hostcheck.Warning, "raid_write_through_now",
			"%s: the controller has stopped caching writes, which its setting asks for: no commit is lost by it, but commits are many times slower; %s", v.Label(), j.backupWords())
	default:
		list.add(hostcheck.OK, "raid_write_through", "%s: the controller does not cache writes", v.Label())
	}
}

// backupWords is what stands for the backup in a sentence.
func (j *judge) backupWords() string {
	b := j.c.Backup
	kind := b.Kind
	if kind == "" {
		kind = "backup unit"
	}
	said := quoted(b.Status)
	switch {
	case b.Present == hostcheck.No:
		return "there is no " + kind + " to keep them"
	case b.ReplacementRequired == hostcheck.Yes:
		return "the " + kind + " has to be replaced" + said
	case b.CapacityLow == hostcheck.Yes && b.Learning != hostcheck.Yes:
		return "the " + kind + "'s capacity is low" + said
	case b.Good == hostcheck.No:
		return "the " + kind + " is not good" + said
	case j.c.Incomplete != "":
		return "not everything could be read (" + j.c.Incomplete + ")"
	case b.Learning == hostcheck.Yes:
		return "the " + kind + " is in its learn cycle" + said
	case b.Good == hostcheck.Yes:
		return "the " + kind + " is good" + said
	}
	return "the state of the " + kind + " is not known" + said
}

func quoted(words string) string {
	if words == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", words)
}
