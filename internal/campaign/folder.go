package campaign

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"plugpull/internal/usage"
	"time"

	"golang.org/x/sys/unix"
)

// Folder is a run's folder: run.json, ledger, journal, cycles/NNNN. One process at a time has it.
type Folder struct {
	Path string
	// Simulated: no power is really cut, so that what is written need only survive this
	// process, and nothing is synced.
	Simulated bool
	lock      *os.File
	journal   *os.File
}

// CreateFolder makes and locks the folder of a new run.
func CreateFolder(path string) (*Folder, error) {
	if err := os.MkdirAll(filepath.Join(path, "cycles"), 0o755); err != nil {
		return nil, fmt.Errorf("make the run's folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(path, "run.json")); err == nil {
		return nil, usage.Errorf("%s holds a run already: carry it on with --resume %s, or give another --out", path, path)
	}
	return openFolder(path)
}

// ReopenFolder locks the folder of a run that is to be carried on.
func ReopenFolder(path string) (*Folder, error) {
	if _, err := os.Stat(filepath.Join(path, "run.json")); err != nil {
		return nil, usage.Errorf("%s holds no run: %w", path, err)
	}
	return openFolder(path)
}

func openFolder(path string) (*Folder, error) {
	f := &Folder{Path: path}
	var err error
	if f.lock, err = os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, fmt.Errorf("lock the run's folder: %w", err)
	}
	if err := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, usage.Errorf("%s: another plugpull is running this run", path)
		}
		return nil, fmt.Errorf("lock the run's folder %s: %w", path, err)
	}
	f.journal, err = os.OpenFile(filepath.Join(path, "journal"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		f.lock.Close()
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return f, nil
}

// Close releases the folder.
func (f *Folder) Close() error { return errors.Join(f.journal.Close(), f.lock.Close()) }

// Ledger is the path of the run's ledger.
func (f *Folder) Ledger() string { return filepath.Join(f.Path, "ledger") }

// Step is a line of the journal: what is about to be done.
type Step struct {
	Wall   time.Time `json:"wall"`
	Cycle  uint32    `json:"cycle"`
	Step   string    `json:"step"`
	Detail string    `json:"detail,omitempty"`
}

// Note makes a step durable in the journal, before it is done. A line is
// started afresh, so that one torn by a crash cannot swallow it.
func (f *Folder) Note(cycle uint32, step, detail string) error {
	b, err := json.Marshal(Step{time.Now(), cycle, step, detail})
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	if _, err := f.journal.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	if f.Simulated {
		return nil
	}
	if err := unix.Fdatasync(int(f.journal.Fd())); err != nil {
		return fmt.Errorf("sync the journal: %w", err)
	}
	return nil
}

// Steps reads the journal; a line torn by a crash is ended and left out.
func (f *Folder) Steps() ([]Step, error) {
	r, err := os.Open(f.journal.Name())
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	defer r.Close()
	var steps []Step
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var s Step
		if json.Unmarshal(sc.Bytes(), &s) == nil {
			steps = append(steps, s)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	return steps, f.endTornLine()
}

func (f *Folder) endTornLine() error {
	st, err := f.journal.Stat()
	if err != nil || st.Size() == 0 {
		return err
	}
	var last [1]byte
	if _, err := f.journal.ReadAt(last[:], st.Size()-1); err != nil {
		return fmt.Errorf("read the journal's end: %w", err)
	}
	if last[0] == '\n' {
		return nil
	}
	_, err = f.journal.Write([]byte{'\n'})
	return err
}

// WriteJSON makes a file of the folder durable: whole, or as it was before.
func (f *Folder) WriteJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	path := filepath.Join(f.Path, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := writeWhole(path, append(b, '\n'), !f.Simulated); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// writeWhole replaces a file: after a kill it is as before or as given, and with sync
// also after a crash of the machine.
func writeWhole(path string, b []byte, sync bool) (err error) {
	tmp := path + ".new"
	w, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	if err == nil && sync {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	if !sync {
		return nil
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReadJSON reads a file of the folder; false when there is none.
func (f *Folder) ReadJSON(name string, v any) (bool, error) {
	b, err := os.ReadFile(filepath.Join(f.Path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("read %s: %w", filepath.Join(f.Path, name), err)
	}
	return true, nil
}

// Cycle reads the result of a cycle that was verified.
func (f *Folder) Cycle(n uint32) (*CycleResult, error) {
	var res CycleResult
	ok, err := f.ReadJSON(cycleFile(n), &res)
	if err == nil && !ok {
		err = fmt.Errorf("%s: cycle %d was not verified", f.Path, n)
	}
	return &res, err
}

func cycleFile(cycle uint32) string { return fmt.Sprintf("cycles/%04d/cycle.json", cycle) }
