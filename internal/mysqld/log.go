package mysqld

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
)

// Mark is a position in the log of one start, in bytes.
type Mark int64

// Mark returns the present end of the log.
func (p *Process) Mark() Mark {
	st, err := os.Stat(p.log)
	if err != nil {
		return 0
	}
	return Mark(st.Size())
}

// Log returns at most the last max bytes of the log of this start. It is there
// until the next start but one, or Close.
func (p *Process) Log(max int) string { return p.LogSince(0, max) }

// LogSince returns at most the last max bytes of the log since mark; in place of a log
// that cannot be read, why not.
func (p *Process) LogSince(mark Mark, max int) string {
	text, err := p.read(mark, max)
	if err != nil {
		return fmt.Sprintf("(the log cannot be read: %v)", err)
	}
	return string(bytes.TrimSpace(text))
}

func (p *Process) read(mark Mark, max int) (_ []byte, err error) {
	f, err := os.Open(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := int64(mark)
	if end := st.Size() - int64(max); end > from {
		from = end
	}
	return io.ReadAll(io.NewSectionReader(f, from, st.Size()-from))
}

// recovery matches the line of InnoDB's crash recovery: "InnoDB: Starting crash
// recovery from checkpoint LSN=…" (MariaDB), "InnoDB: Starting crash recovery." (MySQL 5.7) and
// "[MY-012552] [InnoDB] Starting crash recovery." (MySQL 8.0 and later).
var recovery = regexp.MustCompile(`InnoDB[\]:]+ Starting crash recovery`)

// recoveryWithin is how much of the log's start is looked at, in bytes.
const recoveryWithin = 1 << 20

// Recovered reports whether the log says that InnoDB did crash recovery at this
// start. It is text, so evidence only. A server that is killed with nothing to
// recover may not say so.
func (p *Process) Recovered() bool {
	f, err := os.Open(p.log)
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, recoveryWithin))
	return err == nil && recovery.Match(text)
}
