// Package check asks a host for its whole storage stack and puts what was read into one report: databases,
// folders, devices, the layers below them, and the controllers that the lowest of them are volumes of.
//
// It guarantees what hostcheck does: what could not be read is Unknown, and nothing is changed. A tool that hangs
// costs its part of the report and no more.
package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"plugpull/internal/hostcheck"
	"plugpull/internal/hostcheck/databases"
	"plugpull/internal/hostcheck/layers"
	"plugpull/internal/hostcheck/raid"
)

// Ask says what to look at. Without databases, folders and devices it is every mount on a block device, and
// every controller.
type Ask struct {
	Databases []*databases.Report
	// Elsewhere: the databases' folders are not on the runner's host.
	Elsewhere bool
	Folders   []string
	Devices   []string
	Raid      raid.Options
	// Drive adds what a drive says of itself to a disk's node; nil: nothing.
	Drive func(ctx context.Context, r hostcheck.Runner, name string, n *hostcheck.Node)
}

// Result is a report, and what of it is to be remembered.
type Result struct {
	hostcheck.Report
	Readings []hostcheck.Reading `json:"-"`
}

// Run reads everything and judges it. It blocks until the host has answered or ctx is done.
func Run(ctx context.Context, r hostcheck.Runner, ask Ask) *Result {
	res := &Result{Report: hostcheck.Report{Host: r.Describe()}}
	w := layers.New(r, layers.Options{Drive: ask.Drive})
	for _, db := range ask.Databases {
		res.Tops = append(res.Tops, database(ctx, w, db, ask.Elsewhere))
	}
	for _, f := range ask.Folders {
		res.Tops = append(res.Tops, w.Folder(ctx, f))
	}
	for _, d := range ask.Devices {
		res.Tops = append(res.Tops, w.Device(ctx, d))
	}
	everything := len(ask.Databases)+len(ask.Folders)+len(ask.Devices) == 0
	if everything {
		res.Tops = append(res.Tops, mounts(ctx, r, w)...)
	}
	res.controllers(ctx, r, ask, everything)
	res.Judge()
	return res
}

func mounts(ctx context.Context, r hostcheck.Runner, w *layers.Walker) []*hostcheck.Node {
	list, err := layers.Mounts(ctx, r)
	if err != nil {
		n := &hostcheck.Node{Kind: hostcheck.Note, Name: "on " + r.Describe()}
		n.Add(hostcheck.Unknown, "mounts_unread", "the host's mounts could not be read: %v", err)
		return []*hostcheck.Node{n}
	}
	var tops []*hostcheck.Node
	for _, m := range list {
		tops = append(tops, w.Mount(ctx, m))
	}
	return tops
}

// database is a server, or a file, over the folders that its durability depends on.
func database(ctx context.Context, w *layers.Walker, db *databases.Report, elsewhere bool) *hostcheck.Node {
	n := &hostcheck.Node{Kind: db.Kind, Name: db.Where, Findings: slices.Clone(db.Findings), Facts: slices.Clone(db.Facts),
		Cache: hostcheck.Cache{Volatile: hostcheck.No, Flushes: hostcheck.Yes}}
	for _, s := range db.Settings {
		n.Facts = append(n.Facts, hostcheck.Fact{Key: s.Name, Value: s.Value, From: s.Where})
	}
	switch {
	case elsewhere && db.Apart != "":
		n.Add(hostcheck.Unknown, "folders_elsewhere", "the files of %s may be on another machine or in a container, since %s: check there, or give --data-dir with its folder as this machine has it", db.Where, db.Apart)
	case elsewhere:
		n.Add(hostcheck.Unknown, "folders_elsewhere", "the files of %s are on another machine: give --host ssh://… to see what lies below them", db.Where)
	case len(db.Folders) == 0:
		n.Add(hostcheck.Unknown, "folders_unknown", "%s does not say where its files are: give --data-dir", db.Where)
	}
	if elsewhere {
		return n
	}
	for _, f := range db.Folders {
		below := w.Folder(ctx, f.Path)
		below.Facts = append([]hostcheck.Fact{{Key: "holds", Value: f.What, From: f.From}}, below.Facts...)
		n.Below = append(n.Below, below)
	}
	onStack(n, db)
	return n
}

// controllers asks the tools and hangs their volumes below the disks that they are.
func (res *Result) controllers(ctx context.Context, r hostcheck.Runner, ask Ask, everything bool) {
	disks := res.raidDisks()
	if len(disks) == 0 && !everything {
		return // no disk looks like a controller's volume
	}
	list, findings := raid.Collect(ctx, r)
	var units []unit
	for _, c := range list {
		said := members(ctx, r, c, disks)
		ask.Raid.Member = said.member
		j := raid.Judge(c, ask.Raid)
		res.remember(c)
		top := &hostcheck.Node{Kind: "controller", Name: c.Name(), Findings: j.Findings, Perf: j.Perf,
			Cache: hostcheck.Cache{Volatile: hostcheck.No, Flushes: hostcheck.Yes}, Facts: facts(c)}
		for i, v := range c.Volumes {
			top.Below = append(top.Below, volume(c, v, j.Volumes[i], said))
		}
		units = append(units, unit{c, top})
	}
	used := map[*hostcheck.Node]bool{}
	for _, d := range disks {
		if !attach(d, units, used) {
			d.Add(hostcheck.Unknown, "controller_unread", "disk %s is a volume of a RAID controller, and no tool of it (arcconf, storcli, MegaCli, ssacli) told of its cache and battery", d.Name)
		}
	}
	if everything || len(disks) > 0 {
		if len(findings) > 0 {
			n := &hostcheck.Node{Kind: hostcheck.Note, Name: "on the controllers of " + r.Describe(), Findings: findings}
			res.Tops = append(res.Tops, n)
		}
	}
	for _, u := range units {
		if everything && !used[u.top] {
			res.Tops = append(res.Tops, u.top)
		}
	}
}

func facts(c raid.Controller) []hostcheck.Fact {
	var all []hostcheck.Fact
	for _, f := range []hostcheck.Fact{{Key: "serial", Value: c.Serial, From: c.Tool}, {Key: "firmware", Value: c.Firmware, From: c.Tool},
		{Key: "backup", Value: strings.TrimSpace(c.Backup.Kind + " " + c.Backup.Status), From: c.Tool}} {
		if f.Value != "" {
			all = append(all, f)
		}
	}
	return append(all, c.Rejected...)
}

// volume is a logical drive over its members. Its name is one of the whole host: several controllers have a volume 0.
func volume(c raid.Controller, v raid.Volume, j raid.VolumeJudgement, said answers) *hostcheck.Node {
	name := fmt.Sprintf("%s of %s controller %d", v.Label(), c.Tool, c.Number)
	members := &hostcheck.Node{Kind: "drives", Name: "of " + name, Cache: j.Members}
	if len(v.Members) > 0 {
		members.Name += " (" + strings.Join(v.Members, ", ") + ")"
	}
	said.show(members, v)
	var own []hostcheck.Finding
	for _, f := range j.Findings {
		if strings.HasPrefix(f.Code, "raid_members_") { // it says what to do, which the reasoning over layers cannot
			members.Findings = append(members.Findings, f)
		} else {
			own = append(own, f)
		}
	}
	return &hostcheck.Node{Kind: "volume", Name: name, Findings: own, Cache: j.Cache, Below: []*hostcheck.Node{members},
		Facts: []hostcheck.Fact{{Key: "write policy", Value: fmt.Sprintf("%s now, %s asked for", v.CurrentPolicy, v.DefaultPolicy), From: c.Tool},
			{Key: "level", Value: v.Level, From: c.Tool}}}
}

// vendors are words in the model or vendor of a disk that is a controller's volume (SCSI INQUIRY, as the
// vendors' drivers show it in /sys/block/X/device), for where the driver could not be read.
var vendors = []string{"perc", "megaraid", "avago", "lsi", "broadcom", "logical volume", "smart array", "adaptec", "aacraid", "asr", "serveraid", "raid", "mr9"}

// raidDisks are the disks in the tree that look like volumes of a controller.
func (res *Result) raidDisks() []*hostcheck.Node {
	var all []*hostcheck.Node
	seen := map[*hostcheck.Node]bool{}
	for _, top := range res.Tops {
		top.Walk(func(n *hostcheck.Node) {
			if n.Kind != "disk" || seen[n] || !isRaid(n) {
				return
			}
			seen[n] = true
			all = append(all, n)
		})
	}
	return all
}

// isRaid takes what the walk found out, or else the disk's name for itself.
func isRaid(n *hostcheck.Node) bool {
	if known := value(n, layers.RaidVolume); known != "" {
		return known == hostcheck.Yes.String()
	}
	return slices.ContainsFunc(n.Facts, namesRaid)
}

// value is a fact's, "" where there is none.
func value(n *hostcheck.Node, key string) string {
	for _, f := range n.Facts {
		if f.Key == key {
			return f.Value
		}
	}
	return ""
}

func namesRaid(f hostcheck.Fact) bool {
	if f.Key != "model" && f.Key != "vendor" {
		return false
	}
	for _, word := range strings.Fields(strings.ToLower(f.Value)) {
		for _, v := range vendors {
			if word == v || len(v) > 3 && strings.Contains(strings.ToLower(f.Value), v) {
				return true
			}
		}
	}
	return false
}

// remember keeps the wear of what backs a controller's cache.
func (res *Result) remember(c raid.Controller) {
	p := c.Backup.CapacityPercent
	if p == nil {
		return
	}
	unit := c.Name()
	if c.Serial != "" {
		unit += ", serial " + c.Serial
	}
	res.Readings = append(res.Readings, hostcheck.Reading{At: time.Now().UTC().Truncate(time.Second), Unit: unit, CapacityPercent: *p})
}

// Predict adds this report's readings to a history and warns of what is likely to end, also of controllers that were
// read earlier alone. A file that cannot be used is Unknown.
func (res *Result) Predict(path string, limit float64) {
	n := &hostcheck.Node{Kind: hostcheck.Note, Name: "from the history in " + path}
	all, err := hostcheck.Remember(path, res.Readings)
	if err != nil {
		n.Add(hostcheck.Unknown, "history_unread", "%v", err)
	}
	for _, p := range hostcheck.Predict(all, limit) {
		n.Findings = append(n.Findings, p.Finding(limit))
	}
	if len(n.Findings) > 0 {
		res.Tops = append(res.Tops, n)
		res.Judge()
	}
}
