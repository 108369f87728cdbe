package doctor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sysAdmin reads from /proc/self/status whether CAP_SYS_ADMIN is effective.
func sysAdmin(status string) (bool, error) {
	data, err := os.ReadFile(status)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(data)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return caps&(1<<unix.CAP_SYS_ADMIN) != 0, err
		}
	}
	return false, fmt.Errorf("%s: no line CapEff", status)
}

// userNamespace reads from /proc/self/uid_map whether root is root of the machine: its namespace
// maps every number to itself. What cannot be read is not held against anyone.
func userNamespace(uidMap string) bool {
	data, err := os.ReadFile(uidMap)
	fields := strings.Fields(string(data))
	return err == nil && len(fields) > 0 && strings.Join(fields, " ") != "0 0 4294967295"
}

// kernel is what the running kernel has.
type kernel struct {
	types   map[string]bool // of filesystems, registered
	misc    map[string]bool // names of its misc devices, registered
	modules map[string]bool // built in and loadable; nil: their list cannot be read
}

func readKernel(proc, modules string) kernel {
	k := kernel{types: lastFields(proc + "/filesystems"), misc: lastFields(proc + "/misc")}
	for _, list := range []string{"modules.builtin", "modules.dep"} {
		data, err := os.ReadFile(filepath.Join(modules, list))
		if err != nil {
			continue
		}
		if k.modules == nil {
			k.modules = map[string]bool{}
		}
		for line := range strings.Lines(string(data)) {
			file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			name, _, _ := strings.Cut(path.Base(file), ".ko")
			k.modules[name] = true
		}
	}
	return k
}

// lastFields are the last words of a file's lines; none when it cannot be read.
func lastFields(name string) map[string]bool {
	words := map[string]bool{}
	data, _ := os.ReadFile(name)
	s := bufio.NewScanner(bytes.NewReader(data))
	for s.Scan() {
		if f := strings.Fields(s.Text()); len(f) > 0 {
			words[f[len(f)-1]] = true
		}
	}
	return words
}

func (k kernel) filesystem(name string) Support { return k.support(k.types[name], name) }

func (k kernel) driver(misc, module string) Support { return k.support(k.misc[misc], module) }

func (k kernel) support(registered bool, module string) Support {
	switch {
	case registered:
		return Present
	case k.modules == nil: // as in a container, for which the host's modules are loaded nevertheless
		return Unknown
	case k.modules[module]:
		return Loadable
	}
	return Absent
}

// available is the memory in bytes that can be used without swapping: MemAvailable, or the limit
// of the control group where that is less.
func available(meminfo, self, groups string) (int64, error) {
	data, err := os.ReadFile(meminfo)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, "MemAvailable:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", meminfo, err)
		}
		return min(kib<<10, groupLimit(self, groups)), nil
	}
	return 0, errors.New(meminfo + ": no line MemAvailable")
}

// groupLimit is the least memory limit of this process's control group and those above it, in
// either version of them. Without any it is the largest number.
func groupLimit(self, groups string) int64 {
	least := int64(1<<63 - 1)
	data, _ := os.ReadFile(self)
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, file := groups, "memory.max"
		switch {
		case parts[1] == "memory":
			root, file = filepath.Join(groups, "memory"), "memory.limit_in_bytes"
		case parts[0] != "0":
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			if text, err := os.ReadFile(filepath.Join(root, dir, file)); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
					least = min(least, n)
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}
