package powerctl

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Record is what is written down about an outlet, before and after each command, by
// whoever holds it. It outlives the process: that a record holds an Intent that is not Done
// is how the next one learns that somebody was killed in between.
type Record struct {
	Outlet Identity `json:"outlet"`
	// Owner holds the outlet until Expires, and nobody where it is empty.
	Owner   string    `json:"owner,omitempty"`
	Host    string    `json:"host,omitempty"`
	Machine string    `json:"machine,omitempty"` // its machine id, or its name where it has none
	PID     int       `json:"pid,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	// Guard: the holder only puts the outlet into the state in which a process that was killed was
	// to leave it, and is done soon.
	Guard bool `json:"guard,omitempty"`
	// Leave is the state that the owner has been told to leave behind: on or off.
	Leave string `json:"leave,omitempty"`
	// Intent is the last command.
	Intent *Intent `json:"intent,omitempty"`
	// State is what was last read back, at StateAt; Unknown where nothing was.
	State   State     `json:"state"`
	StateAt time.Time `json:"state_at,omitzero"`
	// Wiring is the last proof of which host hangs on the outlet; nil where there was none.
	Wiring *Wiring `json:"wiring,omitempty"`
}

// Wiring says that off made a host vanish, and on brought it back.
type Wiring struct {
	Witness string    `json:"witness"` // what was asked
	At      time.Time `json:"at"`
}

// Intent is a command that is about to be sent.
type Intent struct {
	Op  string    `json:"op"` // on or off
	At  time.Time `json:"at"`
	PID int       `json:"pid"` // of the process that sent it
	// Done is when the commanded state was read back, or, of an outlet that cannot report,
	// when the command was acknowledged.
	Done time.Time `json:"done,omitzero"`
}

// Open reports whether it is not known that the command took effect.
func (i *Intent) Open() bool { return i != nil && i.Done.IsZero() }

// LeasedError: somebody else holds the outlet.
type LeasedError struct {
	Record Record
	File   string
}

func (e *LeasedError) Error() string {
	r := e.Record
	return fmt.Sprintf("%v is leased to %s (process %d on %s) until %s; when that is gone for good, release it with plugpull power release, or remove %s",
		r.Outlet, r.Owner, r.PID, r.Host, r.Expires.Local().Format(time.DateTime), e.File)
}

// ErrLeaseLost: another owner has taken the outlet, so that nothing was sent.
var ErrLeaseLost = errors.New("the lease of the outlet was taken by somebody else")

// store is the file of one outlet's record. Each change of it holds the file's lock, which
// works over NFS too (Linux has turned flock into its byte-range locks since 2.6.12).
type store struct{ path string }

func newStore(dir string, id Identity) store {
	sum := sha256.Sum256([]byte(id.key()))
	return store{filepath.Join(dir, "outlet-"+hex.EncodeToString(sum[:12])+".json")}
}

// slotSize is that of each of the two places in a record's file, which are written in turn, so
// that the older one is whole while the newer one is written.
const slotSize = 4096

type slot struct {
	Seq    uint64 `json:"plugpull_outlet_record"`
	Record Record `json:"record"`
}

// change reads the record, lets f change it, and has it on disk before it returns. f returns
// an error to leave it as it is. It blocks while another process does the same.
func (s store) change(f func(*Record) error) error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return fmt.Errorf("make the folder of outlet records: %w", err)
	}
	file, err := s.open()
	if err != nil {
		return fmt.Errorf("the outlet's record: %w", err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock the outlet's record %s: %w", s.path, err)
	}
	now, err := readSlots(file)
	if err != nil {
		return fmt.Errorf("the outlet's record %s: %w", s.path, err)
	}
	if err := f(&now.Record); err != nil {
		return err
	}
	now.Seq++
	if err := now.write(file); err != nil {
		return fmt.Errorf("write the outlet's record %s: %w", s.path, err)
	}
	return nil
}

// open opens the record, or makes it; in a folder where everybody may write, everybody may.
func (s store) open() (*os.File, error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC
	file, err := os.OpenFile(s.path, flags, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	file, err = os.OpenFile(s.path, flags|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return os.OpenFile(s.path, flags, 0)
	}
	if err != nil {
		return nil, err
	}
	if st, err := os.Stat(filepath.Dir(s.path)); err == nil && st.Mode().Perm()&0o022 != 0 {
		_ = file.Chmod(0o644 | st.Mode().Perm()&0o022)
	}
	return file, nil
}

// read returns the record and changes nothing; the zero record where there is none.
func (s store) read() (Record, error) {
	file, err := os.OpenFile(s.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, fmt.Errorf("the outlet's record: %w", err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_SH); err != nil {
		return Record{}, fmt.Errorf("lock the outlet's record %s: %w", s.path, err)
	}
	now, err := readSlots(file)
	if err != nil {
		return Record{}, fmt.Errorf("the outlet's record %s: %w", s.path, err)
	}
	return now.Record, nil
}

// readSlots returns the newest whole slot, and the zero slot of an empty file.
func readSlots(file io.ReaderAt) (slot, error) {
	b := make([]byte, 2*slotSize)
	n, err := file.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return slot{}, err
	}
	var newest slot
	for _, part := range [][]byte{b[:slotSize], b[slotSize:]} {
		var s slot
		d := json.NewDecoder(bytes.NewReader(bytes.TrimRight(part, "\x00 \n")))
		d.DisallowUnknownFields()
		if d.Decode(&s) == nil && !d.More() && s.Seq > newest.Seq {
			newest = s
		}
	}
	if newest.Seq == 0 && n > 0 {
		return slot{}, errors.New("holds no record of plugpull: look at it and remove it")
	}
	return newest, nil
}

func (s slot) write(file *os.File) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if len(b) >= slotSize {
		return fmt.Errorf("%d bytes, more than a record has", len(b))
	}
	b = append(b, bytes.Repeat([]byte(" "), slotSize-1-len(b))...)
	if _, err := file.WriteAt(append(b, '\n'), int64(s.Seq%2)*slotSize); err != nil {
		return err
	}
	return file.Sync()
}

// RecordDir is where records lie when nobody says otherwise: one place for the whole
// machine when root runs plugpull, the user's own otherwise.
func RecordDir() string {
	if d := os.Getenv("XDG_STATE_HOME"); d != "" {
		return filepath.Join(d, "plugpull")
	}
	if os.Geteuid() == 0 {
		return "/var/lib/plugpull"
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "plugpull")
	}
	return filepath.Join(os.TempDir(), "plugpull-state")
}
