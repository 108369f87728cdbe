package raid

import (
	"fmt"
	"strings"
)

// most is more controllers than a machine has slots, so that a mad count does not keep a tool busy.
const most = 32

func readArcconf(s *session) []Controller {
	out := s.first("GETCONFIG", "1", "AL")
	if out == nil || noArcconfController(out) {
		return nil
	}
	count, ok := arcconfCount(out)
	if !ok || count < 1 || count > most {
		s.unreadable(fmt.Errorf("the number of controllers: %w", ErrUnreadable), out)
		return nil
	}
	var list []Controller
	for n := 1; n <= count; n++ {
		if n > 1 {
			if out = s.run("GETCONFIG", fmt.Sprint(n), "AL"); out == nil {
				continue
			}
		}
		c, err := ParseArcconf(out, n)
		if err != nil {
			s.unreadable(err, out)
			continue
		}
		list = append(list, c)
	}
	return list
}

func readMegaCli(s *session) []Controller {
	// The adapters come first: this also tells whether there are any.
	m := MegaCli{Adapters: s.first("-AdpAllInfo", "-aALL", "-NoLog")}
	if s.program == "" {
		return nil
	}
	parts := []struct {
		dst  *[]byte
		args []string
	}{
		{&m.Volumes, []string{"-LDInfo", "-Lall", "-aALL", "-NoLog"}},
		{&m.Backup, []string{"-AdpBbuCmd", "-aALL", "-NoLog"}},
		{&m.Disks, []string{"-PDList", "-aALL", "-NoLog"}},
	}
	missing := m.Adapters == nil
	for _, p := range parts {
		*p.dst = s.run(p.args...)
		missing = missing || *p.dst == nil
	}
	list, err := ParseMegaCli(m)
	if err != nil && !missing {
		s.unreadable(err, m.Adapters)
	}
	if missing {
		incomplete(list, "a command of MegaCli failed")
	}
	return list
}

// incomplete marks controllers of which there may be more.
func incomplete(list []Controller, why string) {
	for i := range list {
		if list[i].Incomplete == "" {
			list[i].Incomplete = why
		}
	}
}

// readStorCLI asks for each controller apart. `show` is the list that disturbs least; `show all` of a whole
// controller stops its IO for a moment and is not run.
func readStorCLI(s *session) []Controller {
	out := s.first("/call", "show", "J", "nolog")
	if out == nil {
		return nil
	}
	found, err := ParseStorCLI(s.tool.name, out)
	if err != nil {
		s.unreadable(err, out)
		return nil
	}
	var list []Controller
	for _, c := range found {
		list = append(list, s.storController(c.Number, out))
	}
	return list
}

// storController asks for the details of one controller and joins them with what the list of all said of it.
func (s *session) storController(n int, all []byte) Controller {
	path := fmt.Sprintf("/c%d", n)
	outputs := [][]byte{all}
	failed := ""
	ask := func(what string) []byte {
		out := s.run(path+what, "show", "all", "J", "nolog")
		if out == nil {
			failed = path + what
		} else {
			outputs = append(outputs, out)
		}
		return out
	}
	ask("/vall")
	if s.tool.name != "storcli2" { // version 8 has the energy pack in the list
		ask("/bbu")
		ask("/cv")
	}
	if drives := ask("/eall/sall"); drives != nil && strings.Contains(squeeze(string(drives)), "no drive") {
		ask("/sall") // drives without an enclosure
	}
	list, err := ParseStorCLI(s.tool.name, outputs...)
	if err != nil {
		s.unreadable(err, nil)
	}
	for _, c := range list {
		if c.Number == n {
			if failed != "" {
				one := []Controller{c}
				incomplete(one, failed+" show all failed")
				return one[0]
			}
			return c
		}
	}
	return Controller{Tool: s.tool.name, Number: n, Incomplete: "nothing could be read"}
}

func readSSA(s *session) []Controller {
	out := s.first("ctrl", "all", "show", "config", "detail")
	if out == nil {
		return nil
	}
	list, err := ParseSSA(out)
	if err != nil {
		s.unreadable(err, out)
	}
	for i, c := range list {
		// The output has no mark at its end; a controller lists its drives also without volumes.
		if len(c.Volumes) == 0 && len(c.Disks) == 0 {
			incomplete(list[i:i+1], "ssacli lists neither volumes nor drives")
		}
	}
	return list
}
