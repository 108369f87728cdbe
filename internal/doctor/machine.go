package doctor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"plugpull/internal/blockdev"
	"plugpull/internal/mysqld"
)

// Machine is what there is, as far as benches need it.
type Machine struct {
	Kernel string // its release: "6.1.0-38-amd64"
	UID    int    // effective
	// Admin says whether this process has CAP_SYS_ADMIN, valid when AdminErr is nil.
	Admin    bool
	AdminErr error
	// UserNamespace: root, and capabilities, count only inside a container.
	UserNamespace bool
	Fuse, Loop    Device
	SysReadOnly   bool
	Filesystems   map[string]Support // in the kernel, by type
	Mkfs          map[string]string  // path of the program, by type; "" when there is none
	Server        mysqld.Install
	ServerErr     error
	// NoTools are programs that the server's install script calls and that are not there; OffPath
	// those that are there, and that it does not find.
	NoTools, OffPath []string
	Work, Temp       Room
	Memory           int64 // bytes that are available
	MemoryErr        error
}

// Support says whether the kernel has something.
type Support string

// The answers. Loadable is a module that the kernel loads by itself when it is asked for.
const (
	Present  Support = "in the kernel"
	Loadable Support = "a module, loaded when it is needed"
	Absent   Support = "neither in the kernel nor a module of it"
	Unknown  Support = "not in the kernel now, and its modules cannot be seen from here"
)

// Device is a character device by which the kernel is asked.
type Device struct {
	Path         string
	Module       string
	Major, Minor uint32  // wanted
	Driver       Support // Present: registered
	// There says that the node is there; then GotMajor and GotMinor are its numbers.
	There              bool
	GotMajor, GotMinor uint32
	Err                error // of stat(2), or of opening it; it is opened only when Driver is Present
}

// Room is a folder with its free bytes.
type Room struct {
	Path  string
	Free  int64
	Tmpfs bool
	Err   error
}

// filesystems that a loop scenario can name.
func filesystems() []string { return []string{"ext4", "xfs", "btrfs"} }

// serverLimit bounds the server's answer to --version, which takes some 10 ms.
const serverLimit = 10 * time.Second

// Look reads this machine. workDir is where the loop bench works. It blocks until the server has
// told its version, for which it has 10 s.
func Look(ctx context.Context, workDir string) *Machine {
	m := &Machine{UID: os.Geteuid(), Work: room(workDir), Temp: room(os.TempDir())}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	m.Admin, m.AdminErr = sysAdmin("/proc/self/status")
	m.UserNamespace = userNamespace("/proc/self/uid_map")
	k := readKernel("/proc", "/lib/modules/"+m.Kernel)
	m.Fuse = lookDevice(Device{Path: "/dev/fuse", Module: "fuse", Major: 10, Minor: 229, Driver: k.driver("fuse", "fuse")})
	m.Loop = lookDevice(Device{Path: "/dev/loop-control", Module: "loop", Major: 10, Minor: 237, Driver: k.driver("loop-control", "loop")})
	var st unix.Statfs_t
	m.SysReadOnly = unix.Statfs("/sys/block", &st) == nil && st.Flags&unix.ST_RDONLY != 0
	m.Filesystems, m.Mkfs = map[string]Support{}, map[string]string{}
	for _, f := range filesystems() {
		m.Filesystems[f] = k.filesystem(f)
		m.Mkfs[f], _ = blockdev.FindProgram("mkfs."+f, "") // empty: it is missing
	}
	m.Memory, m.MemoryErr = available("/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup")
	m.lookServer(ctx)
	return m
}

// lookServer asks the server that the bench would take.
func (m *Machine) lookServer(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	m.Server, m.ServerErr = mysqld.Find(ctx, "")
	if m.ServerErr != nil || m.Server.Flavour != mysqld.MariaDB {
		return
	}
	// mariadb-install-db is a shell script. It looks for my_print_defaults below its --basedir
	// alone, and for the others in PATH.
	base := filepath.Dir(filepath.Dir(m.Server.Binary))
	if !executable(filepath.Join(base, "bin", printDefaults)) && !executable(filepath.Join(base, "extra", printDefaults)) {
		m.NoTools = append(m.NoTools, printDefaults)
	}
	_, set := os.LookupEnv("PATH")
	for _, tool := range []string{"awk", "cat", "chmod", "chown", "mkdir", "sed", "uname"} {
		if found, err := exec.LookPath(tool); err == nil && filepath.IsAbs(found) {
			continue
		}
		switch usual := executable("/usr/bin/"+tool) || executable("/bin/"+tool); {
		case !usual:
			m.NoTools = append(m.NoTools, tool)
		case set: // without PATH a shell has one of its own; an empty one leads nowhere
			m.OffPath = append(m.OffPath, tool)
		}
	}
}

const printDefaults = "my_print_defaults"

func executable(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

// lookDevice opens a device when that can load nothing.
func lookDevice(d Device) Device {
	var st unix.Stat_t
	if d.Err = unix.Stat(d.Path, &st); d.Err != nil {
		return d
	}
	d.There = true
	if st.Mode&unix.S_IFMT == unix.S_IFCHR {
		d.GotMajor, d.GotMinor = unix.Major(st.Rdev), unix.Minor(st.Rdev)
	}
	if d.Driver != Present || d.other() {
		return d
	}
	fd, err := unix.Open(d.Path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if d.Err = err; err == nil {
		_ = unix.Close(fd)
	}
	return d
}

// other reports whether the node is something else.
func (d Device) other() bool { return d.There && (d.GotMajor != d.Major || d.GotMinor != d.Minor) }

func room(path string) Room {
	r := Room{Path: path}
	var st unix.Statfs_t
	if r.Err = unix.Statfs(path, &st); r.Err == nil {
		r.Free, r.Tmpfs = int64(st.Bavail)*st.Bsize, st.Type == unix.TMPFS_MAGIC
		r.Err = unix.Access(path, unix.W_OK|unix.X_OK)
	}
	return r
}
