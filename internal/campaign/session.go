package campaign

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"plugpull/client"
	"plugpull/internal/clock"
	"plugpull/internal/database"
	"plugpull/internal/ledger"
	"plugpull/internal/usage"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// Book is an open ledger and all that was read of it.
type Book struct {
	*ledger.Writer
	Path   string
	Config ledger.Config
	// Index has read the ledger up to the last Refresh.
	Index *verifier.Index
	// Witness has read the witness streams' part of it; nil where nobody asked for them.
	Witness *verifier.Index
	Server  map[string]string // the recorded one; nil before the first session
	Boot    string            // the control host's boot at the last session
	Cycle   uint32            // the last
	// Dropped is the torn tail that was cut off when the ledger was opened.
	Dropped ledger.Tail
	// WallBack is how far the wall clock stands behind the last session's; zero
	// when it does not. No interval is measured with it.
	WallBack time.Duration
	// idle are readers that wait for their next pass: their buffers are large.
	idle []*ledger.Reader
}

// Close ends the writer and the readers.
func (b *Book) Close() error {
	errs := []error{b.Writer.Close()}
	for _, r := range b.idle {
		errs = append(errs, r.Close())
	}
	b.idle = nil
	return errors.Join(errs...)
}

// pass is a reader that goes back to its book.
type pass struct {
	*ledger.Reader
	b *Book
}

func (p pass) Close() error {
	p.b.idle = append(p.b.idle, p.Reader)
	return nil
}

// CreateBook makes a new ledger.
func CreateBook(path string, cfg ledger.Config) (*Book, error) {
	boot, err := clock.BootID()
	if err != nil {
		return nil, err
	}
	w, err := ledger.Create(path, cfg.Run, boot, cfg)
	if err != nil {
		return nil, err
	}
	return &Book{Writer: w, Path: path, Config: cfg, Index: verifier.NewIndex()}, nil
}

// OpenBook continues a ledger. It fails when another process writes it, when it is
// damaged, or when the clock stands before its last record.
func OpenBook(path string) (*Book, error) {
	w, st, err := ledger.Open(path)
	if err != nil {
		return nil, err
	}
	b := &Book{Writer: w, Path: path, Config: st.Config, Index: verifier.NewIndex(), Server: st.Info.Server,
		Boot: st.Info.BootID, Cycle: st.Cycle, Dropped: st.Dropped}
	if err := b.resume(st); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return b, nil
}

func (b *Book) resume(st *ledger.State) error {
	boot, err := clock.BootID()
	if err != nil {
		return err
	}
	if b.WallBack, err = st.CheckClock(boot, clock.Now(), time.Now()); err != nil {
		return usage.Errorf("ledger %s: %w", b.Path, err)
	}
	return b.Refresh(context.Background())
}

// Refresh makes everything appended so far durable and reads it into the index.
func (b *Book) Refresh(ctx context.Context) error {
	if err := b.Sync(ctx); err != nil {
		return err
	}
	for _, ix := range []*verifier.Index{b.Index, b.Witness} {
		if ix == nil {
			continue
		}
		if err := b.readOn(ix); err != nil {
			return err
		}
	}
	return nil
}

func (b *Book) readOn(ix *verifier.Index) error {
	r, err := b.read(ix.Next())
	if err != nil {
		return err
	}
	defer r.Close()
	return ix.Read(r)
}

// read opens the ledger at a position.
func (b *Book) read(at ledger.LSN) (verifier.Records, error) {
	var r *ledger.Reader
	if n := len(b.idle); n > 0 {
		r, b.idle = b.idle[n-1], b.idle[:n-1]
	} else {
		var err error
		if r, err = ledger.OpenReader(b.Path); err != nil {
			return nil, err
		}
	}
	if err := r.Seek(at); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return pass{r, b}, nil
}

// Load is what a session commits, and what it tolerates.
type Load struct {
	Streams         int
	AllowNonDurable bool
	AllowBinlog     bool
	Bench, Scenario string
	Plugpull        string // version
	// Witnesses is the number of witness streams, for a Witnessing database.
	Witnesses int
	// First is the least number that a session begins with.
	First workload.Seq
	// Now is the clock that the streams live in; nil is the control host's.
	Now func() clock.Instant
}

// simulatedBoot is the boot id of sessions in a simulated time, which can be
// compared with no other.
const simulatedBoot = "simulated"

// Begin checks the server against the ledger, prepares the tables and opens a
// session. No commit is sent before the session is started.
func (b *Book) Begin(ctx context.Context, db Database, load Load, cycle uint32) (*client.Session, error) {
	if err := b.Refresh(ctx); err != nil {
		return nil, err
	}
	facts, err := CheckServer(ctx, db, load)
	if err != nil {
		return nil, err
	}
	if b.Server != nil {
		if err := sameServer(b.Server, facts.Identity); err != nil {
			return nil, err
		}
	}
	if err := b.tablesThere(ctx, db); err != nil {
		return nil, err
	}
	if err := db.Prepare(ctx, b.Config.Params, b.Index.Epoch()); err != nil {
		return nil, fmt.Errorf("prepare the schema %s: %w", b.Config.Schema, err)
	}
	id, epoch := b.Index.LastSession()+1, b.Index.Epoch()
	token, err := newToken()
	if err != nil {
		return nil, err
	}
	if err := db.PutToken(ctx, id, token); err != nil {
		return nil, fmt.Errorf("write the session's token: %w", err)
	}
	boot, err := load.bootID()
	if err != nil {
		return nil, err
	}
	if load.Witnesses > 0 && b.Witness == nil {
		b.Witness = verifier.NewWitnessIndex()
		if err := b.readOn(b.Witness); err != nil {
			return nil, err
		}
	}
	wall := time.Now()
	s, err := client.Open(ctx, client.Config{
		Params: b.Config.Params, Streams: load.Streams, Witnesses: load.Witnesses, Now: load.Now, InTurn: load.Now != nil,
		Session: id, Cycle: cycle, Epoch: epoch, Token: token,
		Info: ledger.SessionInfo{BootID: boot, Wall: wall.Format(time.RFC3339Nano), Plugpull: load.Plugpull,
			Server: said(facts), Bench: load.Bench, Scenario: load.Scenario},
		First:  func(s workload.Stream) workload.Seq { return max(b.reserved(s)+1, load.First) },
		Ledger: b.Writer, Wall: wall,
		Dial: func(ctx context.Context, s workload.Stream) (client.Conn, error) {
			if w, ok := db.(Witnessing); ok && s.IsWitness() {
				return w.DialWitness(ctx, b.Config.ForWitness())
			}
			return db.Dial(ctx, b.Config.Params, epoch)
		},
	})
	if err != nil {
		return nil, err
	}
	b.Server, b.Boot = facts.Identity, boot
	return s, nil
}

func (b *Book) reserved(s workload.Stream) workload.Seq {
	if s.IsWitness() {
		return b.Witness.Reserved(s)
	}
	return b.Index.Reserved(s)
}

func (l *Load) bootID() (string, error) {
	if l.Now != nil {
		return simulatedBoot, nil
	}
	id, err := clock.BootID()
	return id.String(), err
}

// said is all that the server said of itself, for the ledger.
func said(f database.Facts) map[string]string {
	m := make(map[string]string, len(f.Identity)+len(f.Settings))
	maps.Copy(m, f.Settings)
	maps.Copy(m, f.Identity)
	return m
}

// tablesThere refuses to go on where the tables that the ledger speaks of are gone: made
// anew, they would accuse the server of every older commit.
func (b *Book) tablesThere(ctx context.Context, db Database) (err error) {
	if last, ok := b.Index.Last(); !ok || last.Epoch != b.Index.Epoch() {
		return nil // there were none yet
	}
	rows, release, err := db.Survivors(b.Index.Epoch())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	for _, t := range b.Config.Profile.Tables() {
		_, err := rows.Streams(ctx, t)
		if gone := (*verifier.UnreadableError)(nil); errors.As(err, &gone) {
			return usage.Errorf("%w. If it was lost with the power, run plugpull verify --ledger %s first; if somebody dropped it (plugpull clean does), this ledger has ended: begin a new one",
				gone, b.Path)
		}
		if err != nil {
			return fmt.Errorf("look for the tables: %w", err)
		}
	}
	return nil
}

// CheckServer reads the server's facts and refuses settings that the load does not allow.
func CheckServer(ctx context.Context, db Server, load Load) (database.Facts, error) {
	facts, err := db.Facts(ctx)
	if err != nil {
		return facts, fmt.Errorf("read the server's settings: %w", err)
	}
	return facts, checkSettings(facts, load.AllowNonDurable, load.AllowBinlog)
}

// NewRun returns a fresh run id.
func NewRun() (uuid.UUID, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return id, fmt.Errorf("draw a run id: %w", err)
	}
	return id, nil
}

func newToken() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("draw a token: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]) | 1, nil
}
