package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/uuid"
)

// Create makes a new ledger with mode 0644 and locks it. When it returns,
// header, configuration and the file's name are durable. A file that exists
// is left alone (fs.ErrExist). run must be cfg's; boot is the control host's.
func Create(path string, run, boot uuid.UUID, cfg Config) (*Writer, error) {
	h := Header{Run: run, Boot: boot}
	start, err := beginning(h, cfg)
	if err != nil {
		return nil, fmt.Errorf("ledger %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create ledger: %w", err)
	}
	if err := initialise(f, path, start); err != nil {
		// Nothing was recorded: an empty file would only be in the way.
		return nil, errors.Join(err, os.Remove(path), f.Close())
	}
	return startWriter(osFile{f}, path, h, LSN((len(start)-headerSize)/recordSize), bufferLimit), nil
}

// beginning encodes the header and the configuration.
func beginning(h Header, cfg Config) ([]byte, error) {
	if err := cfg.check(h); err != nil {
		return nil, err
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	r := Record{Kind: KindText, Code: uint8(TextConfig), Text: text}
	if err := r.check(); err != nil {
		return nil, err
	}
	c := newCodec(h.Run)
	return c.append(h.append(nil), 0, &r), nil
}

func initialise(f *os.File, path string, start []byte) error {
	if err := lock(f, path); err != nil {
		return err
	}
	if _, err := f.WriteAt(start, 0); err != nil {
		return fmt.Errorf("ledger %s: write the header: %w", path, advise(err))
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("ledger %s: sync the header: %w", path, advise(err))
	}
	if err := syncDir(path); err != nil {
		return fmt.Errorf("ledger %s: sync its folder: %w", path, err)
	}
	return nil
}

// Open locks an existing ledger (*LockedError when another plugpull writes
// it), reads it whole, cuts off a torn tail and returns a writer that continues it.
// When it returns, the ledger is durable as State describes it. A ledger that
// cannot be read is left as it is.
func Open(path string) (*Writer, *State, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open ledger: %w", err)
	}
	st, err := recoverTail(f, path)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return startWriter(osFile{f}, path, st.Header, st.End, bufferLimit), st, nil
}

func recoverTail(f *os.File, path string) (*State, error) {
	if err := regular(f, path); err != nil {
		return nil, err
	}
	if err := lock(f, path); err != nil {
		return nil, err
	}
	r, err := newReader(f, path, readBuffer)
	if err != nil {
		return nil, err
	}
	st, err := Scan(r)
	if err != nil {
		return nil, err
	}
	if st.Dropped.Bytes > 0 {
		if err := f.Truncate(offset(st.End)); err != nil {
			return nil, fmt.Errorf("ledger %s: cut off the torn tail: %w", path, err)
		}
	}
	// Also without a tail: what a killed plugpull wrote may still be only in
	// memory, and the next session goes on from it.
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("ledger %s: sync: %w", path, advise(err))
	}
	if err := syncDir(path); err != nil {
		return nil, fmt.Errorf("ledger %s: sync its folder: %w", path, err)
	}
	return st, nil
}

// parseConfig is strict: a key that this version does not know could change
// what the rows mean.
func parseConfig(text []byte, h Header) (Config, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var c Config
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%w: something follows it", ErrConfig)
	}
	return c, c.check(h)
}

func (c Config) check(h Header) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.Run != h.Run {
		return fmt.Errorf("%w: it belongs to run %v, the ledger to run %v", ErrConfig, c.Run, h.Run)
	}
	return nil
}
