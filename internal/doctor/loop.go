package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"plugpull/internal/mysqld"
)

// noFlushes is the kind of scenario whose kernel is told that the drive has no cache.
const noFlushes = "queue: write through"

// What the loop bench takes, in bytes, measured with MariaDB 10.11.
const (
	// Its folder holds up to 45 MiB. To tell a damaged server from a sick machine takes another
	// 32 MiB, and with less than 32 MiB free the bench blames no server that dies.
	leastWork, goodWork = 48 << 20, 128 << 20
	tempRoom            = 32 << 20 // for a server that is made: its temporary tablespace above all
	// A short run on ext4 peaked at 220 MiB, its server at 110 MiB, its folder at 45 MiB. A drive
	// that is full takes 512 MiB, unless the scenario says otherwise.
	leastMemory = 384 << 20
	goodMemory  = 768 << 20
)

const (
	privileged  = "# in a container: docker run --privileged …"
	onHost      = " # for a container: on its host"
	newerKernel = "apt-get install linux-image-$(dpkg --print-architecture) # and boot it"
)

// loopChecks are all that the loop bench needs.
func loopChecks(m *Machine) []Check {
	list := []Check{
		m.kernelCheck(), m.rootCheck(),
		m.device(m.Fuse, "the simulated drive is a file of a FUSE filesystem"),
		m.device(m.Loop, "a loop device makes the drive's file a block device"),
		m.sysCheck(), m.serverCheck(),
	}
	if m.ServerErr == nil {
		list = append(list, m.toolsCheck())
	}
	list = append(list, roomCheck("room to work", m.Work, leastWork, goodWork,
		"an empty server to copy, logs and temporary files lie here, not on the drive"))
	if m.Temp.Path != m.Work.Path {
		list = append(list, roomCheck("room for temporary files", m.Temp, tempRoom, tempRoom, "a server is made with its temporary files here"))
	}
	list = append(list, m.memoryCheck())
	for _, f := range filesystems() {
		list = append(list, m.filesystemCheck(f), m.mkfsCheck(f))
	}
	return list
}

func (m *Machine) kernelCheck() Check {
	c := Check{What: "Linux 5.8", State: OK, Found: m.Kernel, Why: "it attaches a loop device in one step (LOOP_CONFIGURE)"}
	var major, minor int
	if _, err := fmt.Sscanf(m.Kernel, "%d.%d", &major, &minor); err != nil {
		c.State, c.Found, c.Fix = CannotTell, fmt.Sprintf("release %q", m.Kernel), "uname -r"
	} else if major < 5 || major == 5 && minor < 8 {
		c.State, c.Fix = Missing, "use Linux 5.8 or later, as Debian 11 and Ubuntu 22.04 have"
	}
	return c
}

func (m *Machine) rootCheck() Check {
	c := Check{What: "root", State: OK, Found: "with CAP_SYS_ADMIN", Why: "mounts and loop devices are made by root of the machine alone"}
	switch {
	case m.UID != 0:
		c.State, c.Found, c.Fix = Missing, fmt.Sprintf("user %d", m.UID), "sudo plugpull …"
	case m.UserNamespace:
		c.State, c.Found, c.Fix = Missing, "root in a user namespace", "run it outside of it, as root of the machine (rootless containers cannot)"
	case m.AdminErr != nil:
		c.State, c.Found, c.Fix = CannotTell, m.AdminErr.Error(), "mount -t proc proc /proc"
	case !m.Admin:
		c.State, c.Found, c.Fix = Missing, "root without CAP_SYS_ADMIN", "docker run --privileged … # or whatever took it away"
	}
	return c
}

func (m *Machine) device(d Device, why string) Check {
	c := Check{What: d.Path, State: OK, Found: "opens", Why: why}
	mknod := fmt.Sprintf("mknod -m 600 %s c %d %d", d.Path, d.Major, d.Minor)
	switch {
	case d.Driver == Absent:
		c.State, c.Found, c.Fix = Missing, "the driver is "+string(d.Driver), newerKernel
	case d.other():
		c.State, c.Found = Missing, fmt.Sprintf("something else, %d:%d instead of %d:%d", d.GotMajor, d.GotMinor, d.Major, d.Minor)
		c.Fix = fmt.Sprintf("umount %s || rm %s; %s %s", d.Path, d.Path, mknod, privileged)
	case !d.There && errors.Is(d.Err, fs.ErrNotExist) && d.Driver == Present:
		c.State, c.Found, c.Fix = Missing, "not there, its driver is", mknod+" "+privileged
	case !d.There && errors.Is(d.Err, fs.ErrNotExist):
		c.State, c.Found, c.Fix = Missing, "not there", "modprobe "+d.Module+onHost
	case d.Driver == Loadable && d.Err == nil:
		c.Found = "the driver is " + string(d.Driver)
	case d.Driver == Unknown && d.Err == nil:
		c.State, c.Found, c.Fix = CannotTell, "the driver is "+string(d.Driver), "modprobe "+d.Module+onHost
	case d.Err == nil:
	case errors.Is(d.Err, fs.ErrPermission) && m.UID != 0:
		c.State, c.Found, c.Fix = CannotTell, "may not be opened by this user", "sudo plugpull doctor loop"
	case errors.Is(d.Err, fs.ErrPermission):
		c.State, c.Found, c.Fix = Missing, "may not be opened: "+d.Err.Error(), "docker run --privileged … # or whatever forbids it"
	case errors.Is(d.Err, unix.ENODEV) || errors.Is(d.Err, unix.ENXIO):
		c.State, c.Found, c.Fix = Missing, "does not open: "+d.Err.Error(), "modprobe "+d.Module
	default:
		c.State, c.Found, c.Fix = CannotTell, "does not open: "+d.Err.Error(), "ls -l "+d.Path
	}
	return c
}

func (m *Machine) sysCheck() Check {
	c := Check{What: "/sys writable", State: OK, Found: "yes", Only: noFlushes, Why: "it is where the kernel is told that a drive has no cache"}
	if m.SysReadOnly {
		c.State, c.Found, c.Fix = Missing, "mounted read-only", "mount -o remount,rw /sys "+privileged
	}
	return c
}

func (m *Machine) serverCheck() Check {
	c := Check{What: "server", State: OK, Why: "it is the database under test"}
	switch err := m.ServerErr; {
	case err == nil:
		c.Found = fmt.Sprintf("%s %s, %s", m.Server.Flavour, m.Server.Version, m.Server.Binary)
	case errors.Is(err, mysqld.ErrNotInstalled):
		c.State, c.Found = Missing, "no mariadbd with mariadb-install-db, no mysqld"
		c.install("mariadb-server-core", "mariadb-client")
	case errors.Is(err, mysqld.ErrUnknownServer):
		c.State, c.Found = Missing, err.Error()
		c.install("mariadb-server-core", "mariadb-client")
	default:
		c.State, c.Found, c.Fix = CannotTell, err.Error(), "mariadbd --no-defaults --version || mysqld --no-defaults --version"
	}
	return c
}

func (m *Machine) toolsCheck() Check {
	c := Check{What: "server's tools", State: OK, Found: "all", Why: "the script that makes a server's files calls them"}
	switch {
	case len(m.NoTools) > 0:
		c.State, c.Found = Missing, "no "+strings.Join(m.NoTools, ", ")
		c.install(toolPackages(m.NoTools)...)
	case len(m.OffPath) > 0:
		c.State, c.Found, c.Fix = Missing, "not in PATH: "+strings.Join(m.OffPath, ", "), "export PATH=/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return c
}

func toolPackages(tools []string) (list []string) {
	for _, tool := range tools {
		p := "coreutils"
		switch tool {
		case printDefaults:
			p = "mariadb-client"
		case "awk":
			p = "mawk"
		case "sed":
			p = "sed"
		}
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// roomCheck wants least bytes, and is content with good.
func roomCheck(what string, r Room, least, good int64, why string) Check {
	const elsewhere = "export TMPDIR=/a/folder/with/room"
	c := Check{What: what, State: OK, Found: fmt.Sprintf("%s free in %s", mib(r.Free), r.Path), Why: fmt.Sprintf("%s; %s are enough", why, mib(good))}
	fix := elsewhere
	if r.Tmpfs {
		fix = fmt.Sprintf("mount -o remount,size=512M %s # for a container: docker run --shm-size=512m …", r.Path)
	}
	switch {
	case r.Err != nil:
		c.State, c.Found, c.Fix = Missing, fmt.Sprintf("%s: %v", r.Path, r.Err), elsewhere
	case r.Free < least:
		c.State, c.Fix = Missing, fix
	case r.Free < good:
		c.State, c.Fix = CannotTell, fix
	}
	return c
}

func (m *Machine) memoryCheck() Check {
	c := Check{What: "memory", State: OK, Found: mib(m.Memory) + " available",
		Why: fmt.Sprintf("it holds the drive and the server: a short run takes %s, a full drive %s", mib(leastMemory), mib(goodMemory))}
	switch {
	case m.MemoryErr != nil:
		c.State, c.Found, c.Fix = CannotTell, m.MemoryErr.Error(), "free -m"
	case m.Memory < leastMemory:
		c.State, c.Fix = Missing, "end other programs, or raise the container's limit (docker run --memory=1g …)"
	case m.Memory < goodMemory:
		c.State, c.Fix = CannotTell, "give the scenario drive: {image: file}, or a smaller drive: {size: …}"
	}
	return c
}

func (m *Machine) filesystemCheck(name string) Check {
	c := Check{What: name, State: OK, Found: string(m.Filesystems[name]), Only: name, Why: "the kernel mounts it"}
	switch m.Filesystems[name] {
	case Present, Loadable:
	case Absent:
		c.State, c.Fix = Missing, newerKernel
	default:
		c.State, c.Found, c.Fix = CannotTell, string(Unknown), "modprobe "+name+onHost
	}
	return c
}

func (m *Machine) mkfsCheck(name string) Check {
	c := Check{What: "mkfs." + name, State: OK, Found: m.Mkfs[name], Only: name, Why: "each cycle may begin on a new filesystem"}
	if c.Found == "" {
		c.State, c.Found = Missing, "not there"
		c.install(map[string]string{"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}[name])
	}
	return c
}

func mib(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
