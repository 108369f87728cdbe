package raid

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plugpull/internal/hostcheck"
)

// ParseStorCLI reads any number of JSON outputs of one storcli, perccli, storcli2 or perccli2 and joins what
// they say of each controller, in the order of their numbers. It goes by the keys that it finds, so that it
// takes `/cX show J`, `/cX/vall show all J`, `/cX/bbu show all J`, `/cX/cv show all J`, `/cX/eall/sall show
// all J`, `/cX show all J` and versions 7 and 8 alike. The error is ErrUnreadable, for outputs that are none;
// the controllers are what the others say.
func ParseStorCLI(tool string, outputs ...[]byte) ([]Controller, error) {
	p := storcli{tool: tool, controllers: map[int]*storController{}}
	var errs []error
	for i, out := range outputs {
		if err := p.output(out); err != nil {
			errs = append(errs, fmt.Errorf("%s output %d: %w", tool, i+1, err))
		}
	}
	var list []Controller
	for _, c := range p.controllers {
		if err := errors.Join(errs...); err != nil {
			c.incomplete(err.Error())
		}
		list = append(list, c.finish())
	}
	slices.SortFunc(list, func(a, b Controller) int { return a.Number - b.Number })
	return list, errors.Join(errs...)
}

type storcli struct {
	tool        string
	controllers map[int]*storController
}

type storController struct {
	Controller
	backup    *backupReader
	absent    map[string]bool // what a command said is not there: "battery", "cachevault"
	volumes   map[string]*storVolume
	disks     map[string]*Disk
	groupOf   map[string]string        // of a drive
	groupDisk map[string]hostcheck.Tri // the drives' cache policy of a drive group
	expected  int                      // volumes, -1 where not said
	listed    bool                     // volumes were listed, or that there are none
}

type storVolume struct {
	Volume
	group string
}

// object is a JSON object; what is not one reads as an empty one.
type object map[string]any

func toObject(v any) object {
	o, _ := v.(map[string]any)
	return o
}

// rows returns the objects of a list; one object alone is a list of one.
func rows(v any) []object {
	list, ok := v.([]any)
	if o, is := v.(map[string]any); !ok && is {
		return []object{o}
	}
	var found []object
	for _, e := range list {
		if o, is := e.(map[string]any); is {
			found = append(found, o)
		}
	}
	return found
}

// text returns the first of the keys that has a text or a number, as text.
func (o object) text(keys ...string) string {
	for _, k := range keys {
		switch v := o[k].(type) {
		case string:
			if t := strings.TrimSpace(v); t != "" {
				return t
			}
		case json.Number:
			return v.String()
		}
	}
	return ""
}

func (p *storcli) output(out []byte) error {
	d := json.NewDecoder(strings.NewReader(string(out)))
	d.UseNumber()
	var doc any
	if err := d.Decode(&doc); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	entries := rows(toObject(doc)["Controllers"])
	if len(entries) == 0 {
		return fmt.Errorf("%w: no Controllers", ErrUnreadable)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, p.entry(toObject(e["Command Status"]), toObject(e["Response Data"])))
	}
	return errors.Join(errs...)
}

func (p *storcli) entry(status, data object) error {
	if status.text("Status") == "" {
		return fmt.Errorf("%w: no Command Status", ErrUnreadable)
	}
	n, err := strconv.Atoi(status.text("Controller"))
	if err != nil {
		if status.text("Status") == "Failure" {
			return nil // of the whole command: "No Controller found"
		}
		return fmt.Errorf("%w: controller %q", ErrUnreadable, status.text("Controller"))
	}
	words := squeeze(said(status))
	if status.text("Status") != "Success" && strings.Contains(words, "controller") && strings.Contains(words, "found") {
		return nil // "Controller 0 not found", "No Controller found"
	}
	c := p.controllers[n]
	if c == nil {
		c = &storController{Controller: Controller{Tool: p.tool, Number: n}, backup: newBackup(p.tool), expected: -1,
			absent: map[string]bool{}, volumes: map[string]*storVolume{}, disks: map[string]*Disk{},
			groupOf: map[string]string{}, groupDisk: map[string]hostcheck.Tri{}}
		p.controllers[n] = c
	}
	if status.text("Status") != "Success" {
		c.failure(said(status))
	}
	keys := make([]string, 0, len(data))
	for k := range data {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		c.section(k, data[k])
	}
	return nil
}

// said is what a command says of its failure.
func said(status object) string {
	parts := []string{status.text("Description")}
	for _, d := range rows(status["Detailed Status"]) {
		parts = append(parts, d.text("ErrMsg"))
	}
	return strings.Join(slices.DeleteFunc(parts, silent), ", ")
}

// failure sorts the failures: some are facts, the others are parts that are missing.
func (c *storController) failure(said string) {
	words := squeeze(said)
	switch {
	case strings.Contains(words, "battery is absent"):
		c.absent["battery"] = true
	case strings.Contains(words, "cachevault is absent"):
		c.absent["cachevault"] = true
	case strings.Contains(words, "use /cx/"), strings.Contains(words, "un-supported command"),
		strings.Contains(words, "no drive"):
	case strings.Contains(words, "no vd"):
		c.listed = true
	default:
		c.incomplete(fmt.Sprintf("%s: a command failed (%s)", c.Tool, said))
	}
}

func (c *storController) incomplete(why string) {
	if c.Incomplete == "" {
		c.Incomplete = why
	}
}

var (
	volumeKey     = regexp.MustCompile(`^/c\d+/v(\d+)$`)
	membersKey    = regexp.MustCompile(`^PDs for VD (\d+)$`)
	propertiesKey = regexp.MustCompile(`^VD(\d+) Properties$`)
	driveKey      = regexp.MustCompile(`^Drive (/c\d+(?:/e\d+)?/s\d+)( - Detailed Information)?$`)
)

// section takes one key of the Response Data.
func (c *storController) section(key string, value any) {
	switch key {
	case "Basics":
		c.Model = toObject(value).text("Model", "Product Name")
		c.Serial = toObject(value).text("Serial Number")
	case "Product Name":
		c.Model = object{key: value}.text(key)
	case "Serial Number":
		c.Serial = object{key: value}.text(key)
	case "Version":
		c.Firmware = toObject(value).text("Firmware Package Build", "Package Version", "Firmware Version")
	case "FW Package Build", "Package Version":
		c.Firmware = object{key: value}.text(key)
	case "VD LIST":
		c.listed = true
		for _, row := range rows(value) {
			c.volumeRow(row)
		}
	case "Virtual Drives":
		c.virtualDrives(value)
	case "TOPOLOGY":
		c.topology(rows(value))
	case "PD LIST":
		for _, row := range rows(value) {
			c.diskRow(row)
		}
	case "Drives List":
		for _, row := range rows(value) {
			id := c.diskRow(toObject(row["Drive Information"]))
			c.diskDetail(id, toObject(row["Drive Detailed Information"]))
		}
	default:
		c.numbered(key, value)
	}
}

// numbered takes the keys that carry a volume's or a drive's number, and the backup's.
func (c *storController) numbered(key string, value any) {
	if m := volumeKey.FindStringSubmatch(key); m != nil {
		for _, row := range rows(value) {
			c.volumeRow(row)
		}
	} else if m := membersKey.FindStringSubmatch(key); m != nil {
		c.members(c.volume(m[1]), rows(value))
	} else if m := propertiesKey.FindStringSubmatch(key); m != nil {
		c.volume(m[1]).properties(toObject(value))
	} else if m := driveKey.FindStringSubmatch(key); m != nil && m[2] == "" {
		for _, row := range rows(value) {
			c.diskRow(row)
		}
	} else if m != nil {
		for part, v := range toObject(value) {
			if strings.HasSuffix(part, " Device attributes") {
				c.diskDetail(slotOf(m[1]), toObject(v))
			}
		}
	} else {
		c.backupSection(key, value)
	}
}
