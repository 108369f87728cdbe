package blockdev

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Message is a message of the kernel.
type Message struct {
	Level int           // 0 emergency … 7 debug
	Time  time.Duration // since boot, by the clock of printk
	Text  string        // "EXT4-fs (loop3): mounted filesystem …"
}

// KernelLog reads the kernel's messages from when it was opened. Safe for concurrent use.
type KernelLog struct {
	mu   sync.Mutex
	fd   int                       // -1 once closed
	read func([]byte) (int, error) // one record
}

// OpenKernelLog opens /dev/kmsg behind the newest message. errors.Is(err, fs.ErrPermission)
// says that it may not be read (kernel.dmesg_restrict, a container).
func OpenKernelLog() (*KernelLog, error) {
	fd, err := open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open the kernel log: %w", err)
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		return nil, errors.Join(fmt.Errorf("go to the end of the kernel log: %w", err), unix.Close(fd))
	}
	return &KernelLog{fd: fd, read: func(b []byte) (int, error) { return unix.Read(fd, b) }}, nil
}

// Read returns the messages since the last Read, without waiting for any. With names it
// returns only those that mention one of them as a word: "loop1" is not in "loop10".
// lost says that the kernel had to drop messages before they were read.
func (k *KernelLog) Read(names ...string) (said []Message, lost bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fd < 0 {
		return nil, false, fmt.Errorf("read the kernel log: %w", fs.ErrClosed)
	}
	buf := make([]byte, 8192) // the kernel's own limit for a record, before 6.5 (now 2 KiB)
	for {
		n, err := k.read(buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EPIPE): // overwritten; the next read goes on with the oldest there is
			lost = true
		case errors.Is(err, unix.EAGAIN) || err == nil && n == 0:
			return said, lost, nil
		case err != nil:
			return said, lost, fmt.Errorf("read the kernel log: %w", err)
		default:
			m, err := parseMessage(string(buf[:n]))
			if err != nil {
				return said, lost, fmt.Errorf("read the kernel log: %w", err)
			}
			if m.mentions(names) {
				said = append(said, m)
			}
		}
	}
}

// Close closes the log. It does nothing to a nil log.
func (k *KernelLog) Close() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fd < 0 {
		return nil
	}
	err := unix.Close(k.fd)
	k.fd = -1
	return err
}

// texts are the texts of what Read returns; none from a nil log.
func (k *KernelLog) texts(name string) []string {
	if k == nil {
		return nil
	}
	said, _, _ := k.Read(name)
	var texts []string
	for _, m := range said {
		texts = append(texts, m.Text)
	}
	return texts
}

// parseMessage reads a record: "level,sequence,µs,flags[,…];text\n KEY=value\n". See
// Documentation/ABI/testing/dev-kmsg.
func parseMessage(record string) (Message, error) {
	head, body, ok := strings.Cut(record, ";")
	fields := strings.Split(head, ",")
	if !ok || len(fields) < 3 {
		return Message{}, fmt.Errorf("record %q has no head", record)
	}
	level, err1 := strconv.ParseUint(fields[0], 10, 32)
	usec, err2 := strconv.ParseInt(fields[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return Message{}, fmt.Errorf("record %q: %w", record, err)
	}
	text, _, _ := strings.Cut(body, "\n") // what follows are KEY=value lines
	return Message{
		Level: int(level & 7), // above it is the facility
		Time:  time.Duration(usec) * time.Microsecond,
		Text:  text,
	}, nil
}

func (m Message) mentions(names []string) bool {
	for _, name := range names {
		if mentions(m.Text, name) {
			return true
		}
	}
	return len(names) == 0
}

// mentions says whether name is in text with no letter or digit beside it.
func mentions(text, name string) bool {
	if name == "" {
		return false
	}
	for from := 0; ; {
		i := strings.Index(text[from:], name)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(name)
		if (i == 0 || !alnum(text[i-1])) && (end == len(text) || !alnum(text[end])) {
			return true
		}
		from = i + 1
	}
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
