package raid

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

func (c *storController) volume(id string) *storVolume {
	if c.volumes[id] == nil {
		c.volumes[id] = &storVolume{Volume: Volume{ID: id}}
	}
	return c.volumes[id]
}

// volumeRow takes a row of a list of volumes and returns the volume, nil where the row names none.
func (c *storController) volumeRow(row object) *storVolume {
	group, id, ok := strings.Cut(row.text("DG/VD"), "/")
	if _, err := strconv.Atoi(id); !ok || err != nil {
		c.incomplete(fmt.Sprintf("%s: a volume without a number", c.Tool))
		return nil
	}
	v := c.volume(id)
	v.group, v.Name, v.Level, v.Size = group, row.text("Name"), row.text("TYPE"), row.text("Size")
	// Version 8 has what was asked for beside what is done now; version 7 has that in the volume's properties.
	if words := row.text("CurrentCache"); words != "" {
		v.PolicyWords, v.CurrentPolicy = words, cacheLetters(words)
		v.DefaultPolicy = cacheLetters(row.text("DefaultCache"))
	} else if words := row.text("Cache"); words != "" {
		v.PolicyWords, v.CurrentPolicy = words, cacheLetters(words)
	}
	return v
}

var letters = regexp.MustCompile(`^N?R(AWB|FWB|WB|WT)[DC]?$`)

// cacheLetters reads "RWBD" and "NRAWBC" of version 7: reading ahead or not, the write policy, direct or
// cached IO; the A belongs to the write policy, "always". Version 8 puts commas: "NR,WB".
func cacheLetters(words string) Policy {
	words = strings.ToUpper(strings.ReplaceAll(words, " ", ""))
	parts := strings.Split(words, ",")
	if m := letters.FindStringSubmatch(words); m != nil {
		parts = m[1:]
	}
	found := PolicyNotKnown
	for _, part := range parts {
		switch part {
		case "AWB", "FWB":
			found = ForcedWriteBack
		case "WB":
			found = WriteBack
		case "WT":
			found = WriteThrough
		}
	}
	return found
}

// virtualDrives takes a number in the lists of version 7 and 8, and the volumes in version 8's `/cX/vall`.
func (c *storController) virtualDrives(value any) {
	c.listed = true
	if n, err := strconv.Atoi(object{"n": value}.text("n")); err == nil {
		c.expected = n
		return
	}
	for _, entry := range rows(value) {
		if v := c.volumeRow(toObject(entry["VD Info"])); v != nil {
			c.members(v, rows(entry["PDs"]))
			v.properties(toObject(entry["VD Properties"]))
		}
	}
}

func (v *storVolume) properties(o object) {
	if d := devicePath(o.text("OS Drive Name")); d != "" {
		v.Device = d
	}
	if words := o.text("Disk Cache Policy", "Drive Write Cache Policy"); words != "" {
		v.DiskCache = onOff(words)
	}
	words := strings.NewReplacer(" ", "", "-", "").Replace(squeeze(o.text("Write Cache(initial setting)")))
	switch {
	case words == "writethrough":
		v.DefaultPolicy = WriteThrough
	case words == "writeback":
		v.DefaultPolicy = WriteBack
	case strings.HasSuffix(words, "writeback"): // always, forced
		v.DefaultPolicy = ForcedWriteBack
	}
}

func (c *storController) members(v *storVolume, list []object) {
	for _, row := range list {
		if id := c.diskRow(row); id != "" && !slices.Contains(v.Members, id) {
			v.Members = append(v.Members, id)
		}
	}
}

// topology takes the drives' cache policy of each drive group: dflt, enbl, dsbl.
func (c *storController) topology(list []object) {
	for _, row := range list {
		if row.text("Arr", "Span") == "-" && row.text("Row") == "-" {
			c.groupDisk[row.text("DG")] = onOff(row.text("PDC"))
		}
	}
}

// diskRow takes a row of a list of drives and returns the drive's ID, "" where the row names none.
func (c *storController) diskRow(row object) string {
	id := strings.TrimSpace(strings.TrimPrefix(strings.ReplaceAll(row.text("EID:Slt"), " ", ""), ":"))
	if id == "" || id == "-" {
		return ""
	}
	d := c.disk(id)
	d.Model, d.State, d.DeviceID = row.text("Model"), row.text("State"), row.text("DID")
	if state := row.text("Status"); state != "" {
		d.State = state
	}
	if group := row.text("DG"); group != "" {
		c.groupOf[id] = group
	}
	return id
}

func (c *storController) disk(id string) *Disk {
	if c.disks[id] == nil {
		c.disks[id] = &Disk{ID: id}
	}
	return c.disks[id]
}

var slotPath = regexp.MustCompile(`^/c\d+(?:/e(\d+))?/s(\d+)$`)

// slotOf turns "/c0/e252/s1" into "252:1", which is how the lists name the drive.
func slotOf(path string) string {
	m := slotPath.FindStringSubmatch(path)
	switch {
	case m == nil:
		return ""
	case m[1] == "":
		return m[2]
	}
	return m[1] + ":" + m[2]
}

func (c *storController) diskDetail(id string, o object) {
	if id == "" || o == nil {
		return
	}
	d := c.disk(id)
	d.Serial = o.text("SN", "Serial Number")
	d.Firmware = o.text("Firmware Revision", "Firmware Revision Level", "Firmware Version")
	if model := o.text("Model Number", "Model"); model != "" {
		d.Model = model
	}
	d.WriteCache = onOff(o.text("Write Cache", "Write cache"))
}

// backupSection takes the sections on the battery, the CacheVault and version 8's energy pack: lists of
// Property and Value, or rows of a table.
func (c *storController) backupSection(key string, value any) {
	switch key {
	case "BBU_Info":
		c.backup.Kind = Battery
		c.backup.present()
	case "Cachevault_Info":
		c.backup.Kind = FlashModule
		c.backup.present()
	case "Energy Pack Info":
		if len(rows(value)) > 0 {
			c.backup.present()
		}
	case "BBU_Firmware_Status", "Firmware_Status", "GasGaugeStatus", "GasGauge Status", "BBU_Capacity_Info",
		"BBU_Design_Info", "Design_Info", "BBU_Properties", "Properties":
	default:
		return
	}
	for _, row := range rows(value) {
		if property := row.text("Property"); property != "" {
			if squeeze(property) != "type" {
				c.backup.flag(property, row.text("Value"))
			}
			continue
		}
		c.backup.word(row.text("State", "Status", "Energy Pack Status"))
		c.backup.gauge("temperature", row.text("Temp", "Temperature(C)"))
		c.backup.gauge("battery backup charge time", row.text("RetentionTime"))
		if next := row.text("NextLearn", "Next Learn"); !silent(next) {
			c.backup.NextLearn = next
		}
		if kind := backupKind(row.text("Type")); kind != "" {
			c.backup.Kind = kind
		}
	}
}

// finish joins the parts in the order of their numbers.
func (c *storController) finish() Controller {
	if c.backup.Present == hostcheck.NotKnown && c.absent["battery"] && c.absent["cachevault"] {
		c.backup.Present = hostcheck.No
		c.backup.words = append(c.backup.words, "Battery is absent, Cachevault is absent")
	}
	c.Backup, c.Rejected = c.backup.settle(), c.backup.rejected
	for _, v := range c.volumes {
		if _, err := strconv.Atoi(v.group); len(v.Members) == 0 && err == nil {
			for id, group := range c.groupOf {
				if group == v.group {
					v.Members = append(v.Members, id)
				}
			}
			slices.SortFunc(v.Members, byNumbers)
		}
		if v.DiskCache == hostcheck.NotKnown {
			v.DiskCache = c.groupDisk[v.group]
		}
		c.Volumes = append(c.Volumes, v.Volume)
	}
	for _, d := range c.disks {
		c.Disks = append(c.Disks, *d)
	}
	slices.SortFunc(c.Volumes, func(a, b Volume) int { return byNumbers(a.ID, b.ID) })
	slices.SortFunc(c.Disks, func(a, b Disk) int { return byNumbers(a.ID, b.ID) })
	if !c.listed && len(c.Volumes) == 0 {
		c.incomplete(c.Tool + " lists no virtual drives, not even none")
	}
	if c.expected > len(c.Volumes) {
		c.incomplete(fmt.Sprintf("%s counts %d virtual drives and describes %d", c.Tool, c.expected, len(c.Volumes)))
	}
	return c.Controller
}

// byNumbers orders "252:2" before "252:10".
func byNumbers(a, b string) int {
	as, bs := strings.Split(a, ":"), strings.Split(b, ":")
	for i := range min(len(as), len(bs)) {
		x, _ := strconv.Atoi(as[i])
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x - y
		}
	}
	return strings.Compare(a, b)
}
