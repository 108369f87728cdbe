package raid

import (
	"fmt"
	"slices"

	"plugpull/internal/hostcheck"
)

// members joins the policy for the members' own caches, what the controller says of each drive, and what is
// known from elsewhere. A drive that says on outranks a policy that says off.
func (j *judge) members(v Volume) hostcheck.Cache {
	disks, all := j.disksOf(v)
	on, off, safe, disputed := 0, 0, 0, ""
	out := hostcheck.Cache{Why: "the drives' own caches, as the controller and they themselves tell them"}
	for _, d := range disks {
		cache, saved := j.disk(d)
		switch {
		case cache == hostcheck.No:
			off++
			safe++
		case saved == hostcheck.Yes:
			safe++
		case saved == hostcheck.No:
			out.Protected = hostcheck.No
		}
		if cache == hostcheck.Yes {
			on++
		}
		if cache == hostcheck.NotKnown && d.WriteCache == hostcheck.Yes {
			disputed = "the controller says that the cache of drive " + d.ID + " is on, and the drive that it is off"
			out.Why = disputed
		}
	}
	switch n := len(disks); {
	case on > 0 && (len(v.Members) > 0 || on == n):
		out.Volatile = hostcheck.Yes
	case all && off == n:
		out.Volatile = hostcheck.No
	}
	if all && safe == len(disks) {
		out.Protected = hostcheck.Yes
	}
	switch {
	case v.DiskCache == hostcheck.Yes && out.Volatile == hostcheck.No:
		out.Volatile, out.Protected = hostcheck.NotKnown, hostcheck.NotKnown
		out.Why = "the volume's policy turns them on, and the drives say off"
	case v.DiskCache == hostcheck.No && out.Volatile == hostcheck.Yes:
		out.Why = "the volume's policy turns them off, and a drive says on"
	case v.DiskCache == hostcheck.No && disputed != "":
		out.Why = "the volume's policy turns them off, " + disputed
	case v.DiskCache == hostcheck.No && on > 0:
		out.Why = "the volume's policy turns them off, and a drive of the controller says on"
	case v.DiskCache != hostcheck.NotKnown:
		out.Volatile, out.Why = v.DiskCache, "the volume's policy for the drives' caches"
	}
	return out
}

// disk is a drive's own cache and whether it is saved.
func (j *judge) disk(d Disk) (cache, safe hostcheck.Tri) {
	cache = d.WriteCache
	if j.o.Member == nil {
		return cache, hostcheck.NotKnown
	}
	known := j.o.Member(d)
	switch {
	case known.Volatile == hostcheck.NotKnown || known.Volatile == cache:
	case cache == hostcheck.Yes:
		cache = hostcheck.NotKnown // the controller says on and the drive off: one of them is wrong
	default:
		cache = known.Volatile
	}
	return cache, known.Protected
}

// disksOf returns the drives of a volume and whether these are all. Where the tool does not say which drives
// a volume has, they are all drives of the controller, if all could be read.
func (j *judge) disksOf(v Volume) ([]Disk, bool) {
	if len(v.Members) == 0 {
		return j.c.Disks, len(j.c.Disks) > 0 && j.c.Incomplete == ""
	}
	var list []Disk
	for _, id := range v.Members {
		if i := slices.IndexFunc(j.c.Disks, func(d Disk) bool { return d.ID == id }); i >= 0 {
			list = append(list, j.c.Disks[i])
		}
	}
	return list, len(list) == len(v.Members)
}

// doubt names the first drive whose cache may lose something, with what is known of it, or says how to ask.
func (j *judge) doubt(v Volume) string {
	text, more := "", 0
	disks, _ := j.disksOf(v)
	for _, d := range disks {
		if cache, saved := j.disk(d); cache == hostcheck.No || saved == hostcheck.Yes || j.o.Member == nil {
			continue
		}
		why := j.o.Member(d).Why
		switch {
		case text != "":
			more++
		case why != "":
			text = "drive " + d.ID + ": " + why
		}
	}
	switch {
	case text == "":
		return "ask each with smartctl -d, as smartctl(8) says for the controller"
	case more > 0:
		return fmt.Sprintf("%s (and %d more)", text, more)
	}
	return text
}

func (j *judge) memberFindings(list *findings, v Volume, m hostcheck.Cache) {
	switch {
	case m.Volatile == hostcheck.No:
		list.add(hostcheck.OK, "raid_members_cache_off", "%s: the write caches of its drives are off", v.Label())
	case m.Protected == hostcheck.Yes:
		list.add(hostcheck.OK, "raid_members_cache_protected", "%s: its drives save their own write caches when power is lost", v.Label())
	case m.Volatile == hostcheck.Yes:
		list.add(hostcheck.Critical, "raid_members_cache_on",
			"%s: the write caches of its drives are on, which no backup of the controller protects: a power cut can lose acknowledged commits; turn them off, unless all have power-loss protection that works; %s", v.Label(), j.doubt(v))
	default:
		list.add(hostcheck.Unknown, "raid_members_cache_unknown",
			"%s: it cannot be told whether the write caches of its drives are on (%s); set the volume's policy for them to off, or find out from the drives: %s", v.Label(), m.Why, j.doubt(v))
	}
}
