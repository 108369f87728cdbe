package layers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"plugpull/internal/hostcheck"
)

// fake is a host of files and links. Folders are those that its files and links are in.
type fake struct {
	files, links map[string]string
	denied       []string // beginnings of paths that may not be read
	commands     map[string]hostcheck.Output
	mounts       int
}

func newFake() *fake {
	f := &fake{files: map[string]string{}, links: map[string]string{}, commands: map[string]hostcheck.Output{}}
	f.files["/proc/sys/kernel/osrelease"] = "6.1.0-18-amd64\n"
	f.files["/data/db/file"] = ""
	f.mount("8:2", "/", "ext4 /dev/root rw")
	return f
}

// mount adds a mount: its device number, point, and what is behind the dash.
func (f *fake) mount(device, dir, rest string) *fake {
	f.mounts++
	f.files[mountInfo] += fmt.Sprintf("%d %d %s / %s rw,relatime shared:1 - %s\n", 20+f.mounts, min(20+f.mounts-1, 21), device, dir, rest)
	f.files[path.Join(dir, ".")+"/."] = ""
	return f
}

// set adds attributes of a whole block device: "queue/write_cache", "write back", …
func (f *fake) set(name string, pairs ...string) *fake {
	for i := 0; i < len(pairs); i += 2 {
		f.files[sysPath(name, pairs[i])] = pairs[i+1] + "\n"
	}
	return f
}

// block adds a whole block device.
func (f *fake) block(name, number, real, cache string) *fake {
	f.links["/sys/class/block/"+name], f.links["/sys/block/"+name], f.links["/sys/dev/block/"+number] = real, real, real
	f.files["/sys/class/block/"+name+"/dev"], f.files["/dev/"+name] = number, ""
	return f.set(name, "queue/write_cache", cache, "slaves/.", "", "mq/0/cpu_list", "0")
}

// sata adds a disk with one partition.
func (f *fake) sata(name, number, cache string) *fake {
	real := "/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/" + name
	f.block(name, number+":0", real, cache)
	f.set(name, "device/vendor", "ATA     ", "device/model", "EXAMPLE SSD 1", "stat", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 42 17")
	f.files["/sys/class/scsi_host/host0/proc_name"] = "ahci\n"
	return f.part(name, name+"1", number+":1")
}

func (f *fake) part(disk, name, number string) *fake {
	real := f.links["/sys/block/"+disk] + "/" + name
	f.links["/sys/class/block/"+name], f.links["/sys/dev/block/"+number] = real, real
	f.files["/sys/class/block/"+name+"/partition"], f.files["/dev/"+name] = "1\n", ""
	return f
}

func (f *fake) nvme(name, number, cache string) *fake {
	f.block(name, number, "/sys/devices/pci0000:00/0000:01:00.0/nvme/"+name[:5]+"/"+name, cache)
	return f.set(name, "device/model", "EXAMPLE NVME 2", "device/transport", "pcie", "stat", "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 7 9")
}

// virtual adds a device of a driver on top of others.
func (f *fake) virtual(name, number, cache string, slaves ...string) *fake {
	f.block(name, number, "/sys/devices/virtual/block/"+name, cache)
	delete(f.files, sysPath(name, "mq/0/cpu_list"))
	for _, s := range slaves {
		f.set(name, "slaves/"+s+"/.", "")
	}
	return f
}

func (f *fake) mapped(name, number, label, uuid, cache string, slaves ...string) *fake {
	f.links["/dev/mapper/"+label] = "/dev/" + name
	return f.virtual(name, number, cache, slaves...).set(name, "dm/name", label, "dm/uuid", uuid)
}

func (f *fake) allowed(p string) error {
	for _, d := range f.denied {
		if strings.HasPrefix(p, d) {
			return &fs.PathError{Op: "open", Path: p, Err: fs.ErrPermission}
		}
	}
	return nil
}

func absent(p string) error { return &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist} }

func (f *fake) ReadFile(_ context.Context, p string) ([]byte, error) {
	if err := f.allowed(p); err != nil {
		return nil, err
	}
	if text, ok := f.files[p]; ok {
		return []byte(text), nil
	}
	return nil, absent(p)
}

func (f *fake) ReadDir(_ context.Context, dir string) ([]string, error) {
	if err := f.allowed(dir); err != nil {
		return nil, err
	}
	var names []string
	found := false
	for _, all := range []map[string]string{f.files, f.links} {
		for p := range all {
			if rest, ok := strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/"); ok {
				found = true
				if name, _, _ := strings.Cut(rest, "/"); name != "." {
					names = append(names, name)
				}
			}
		}
	}
	if !found {
		return nil, absent(dir)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (f *fake) RealPath(ctx context.Context, p string) (string, error) {
	if err := f.allowed(p); err != nil {
		return "", err
	}
	if to, ok := f.links[p]; ok {
		return to, nil
	}
	if _, ok := f.files[p]; ok {
		return p, nil
	}
	if _, err := f.ReadDir(ctx, p); err != nil {
		return "", absent(p)
	}
	return p, nil
}

func (f *fake) Run(_ context.Context, name string, args ...string) (hostcheck.Output, error) {
	if out, ok := f.commands[hostcheck.CommandLine(name, args...)]; ok {
		return out, nil
	}
	return hostcheck.Output{}, errors.Join(errors.New(name), hostcheck.ErrNotInstalled)
}

func (f *fake) Describe() string { return "a fake host" }
