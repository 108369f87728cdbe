// Package client streams numbered commits to a database and writes down what became
// of each.
//
// It guarantees that nothing is ever sent twice: a stream owns one connection
// and ends at the first commit whose outcome it does not know. Before a number
// is sent, a reservation that covers it is durable in the ledger, and every
// outcome is appended to the ledger before the next number is sent. The client
// does not judge, and it does not know which database it talks to.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

// Ledger is where the session writes; its methods may be called concurrently.
type Ledger interface {
	// Append adds a record in memory; it is durable once Durable reaches the returned number.
	Append(ledger.Record) (ledger.LSN, error)
	// AppendAll adds records with no other between them.
	AppendAll([]ledger.Record) (ledger.LSN, error)
	// Sync makes everything appended so far durable at once.
	Sync(context.Context) error
	// SyncTo blocks until everything up to the number is durable, in its own time.
	SyncTo(context.Context, ledger.LSN) error
	Durable() ledger.LSN
	// Failed is closed when a write has failed; nothing is durable from then on.
	Failed() <-chan struct{}
}

// Config describes a session.
type Config struct {
	Params  workload.Params
	Streams int // 1 to 1000
	// Witnesses is the number of streams beside them that append to a file;
	// they are numbered from workload.FirstWitness.
	Witnesses int
	Session   uint32
	Cycle     uint32
	Epoch     uint32
	Token     uint64 // in the server's MEMORY table
	Info      ledger.SessionInfo
	// First returns the first number that a stream has never reserved.
	First  func(workload.Stream) workload.Seq
	Ledger Ledger
	// Dial opens a stream's connection; it is called once a stream.
	Dial func(context.Context, workload.Stream) (Conn, error)
	// InTurn connects one stream after the other: nothing is left to chance.
	InTurn bool
	// Now reads the clock; nil means clock.Now.
	Now func() clock.Instant
	// Wall is the wall clock at the session's start.
	Wall time.Time
}

// Session is a set of streams that commit at the same time. Its methods may be called concurrently.
type Session struct {
	cfg     Config
	streams []*stream
	cancel  context.CancelFunc
	ctx     context.Context
	stop    chan struct{}
	stopped sync.Once
	ended   chan struct{}
	start   clock.Instant
}

// Open connects every stream and makes the session's head durable in the ledger. No
// commit is sent before Start. It blocks on the database and the ledger.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	if cfg.Now == nil {
		cfg.Now = clock.Now
	}
	s := &Session{cfg: cfg, stop: make(chan struct{}), ended: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.dial(ctx); err != nil {
		s.closeAll()
		return nil, err
	}
	if err := s.writeHead(ctx); err != nil {
		s.closeAll()
		return nil, fmt.Errorf("write the session's head into the ledger: %w", err)
	}
	return s, nil
}

func (s *Session) closeAll() {
	s.cancel()
	for _, st := range s.streams {
		if st.conn != nil {
			st.conn.Close()
		}
	}
}

func (s *Session) dial(ctx context.Context) error {
	for i := range s.cfg.Streams {
		id := workload.Stream(i + 1)
		s.streams = append(s.streams, newStream(s, id, s.cfg.First(id)))
	}
	for i := range s.cfg.Witnesses {
		id := workload.FirstWitness + workload.Stream(i)
		s.streams = append(s.streams, newStream(s, id, s.cfg.First(id)))
	}
	errs := make([]error, len(s.streams))
	var wg sync.WaitGroup
	atOnce := 8
	if s.cfg.InTurn {
		atOnce = 1
	}
	slots := make(chan struct{}, atOnce)
	for i, st := range s.streams {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			conn, err := s.cfg.Dial(ctx, st.id)
			if err != nil {
				errs[i] = fmt.Errorf("connect stream %d: %w", st.id, err)
				return
			}
			st.conn = conn
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err // one of many that say the same
		}
	}
	return nil
}

func (s *Session) writeHead(ctx context.Context) error {
	info, err := json.Marshal(s.cfg.Info)
	if err != nil {
		return err
	}
	now := s.cfg.Now()
	head := []ledger.Record{
		{Kind: ledger.KindSession, Session: s.cfg.Session, Cycle: s.cfg.Cycle, Count: uint64(s.cfg.Epoch),
			From: workload.Seq(s.cfg.Wall.UnixNano()), To: workload.Seq(s.cfg.Token), Sent: now},
		{Kind: ledger.KindText, Code: uint8(ledger.TextSession), Session: s.cfg.Session, Text: info},
	}
	for _, st := range s.streams {
		kind := ledger.DatabaseStream
		if st.id.IsWitness() {
			kind = ledger.WitnessStream
		}
		head = append(head, ledger.Record{Kind: ledger.KindStream, Session: s.cfg.Session, Stream: st.id,
			Code: uint8(kind), From: st.next, To: workload.Seq(st.conn.ID()), Sent: now})
	}
	if _, err := s.cfg.Ledger.AppendAll(head); err != nil {
		return err
	}
	for _, st := range s.streams {
		if err := st.reserve(); err != nil {
			return err
		}
	}
	if err := s.cfg.Ledger.Sync(ctx); err != nil {
		return err
	}
	for _, st := range s.streams {
		if err := st.awaitReserved(ctx); err != nil {
			return err
		}
	}
	return nil
}

// TakeTurns commits in the caller's goroutine, one commit a stream in turn, until
// every stream has ended: a session without chance. It takes the place of Start.
func (s *Session) TakeTurns(ctx context.Context) {
	s.start = s.cfg.Now()
	for running := len(s.streams); running > 0; {
		for _, st := range s.streams {
			if !st.over && !st.turn(ctx) {
				st.over = true
				close(st.done)
				running--
			}
		}
	}
	s.cancel()
	close(s.ended)
}

// Start lets the streams commit. It returns at once.
func (s *Session) Start() {
	s.start = s.cfg.Now()
	var wg sync.WaitGroup
	for _, st := range s.streams {
		wg.Go(func() { st.run(s.ctx) })
	}
	failed := make(chan struct{})
	wg.Go(func() {
		select {
		case <-s.cfg.Ledger.Failed():
			s.cancel()
		case <-failed:
		}
	})
	go func() {
		for _, st := range s.streams {
			<-st.done
		}
		close(failed)
		wg.Wait()
		s.cancel()
		close(s.ended)
	}()
}

// Stop ends each stream after the commit it is waiting for. It returns at once.
func (s *Session) Stop() { s.stopped.Do(func() { close(s.stop) }) }

// Abandon ends the streams without waiting for replies: what is under way becomes unknown.
func (s *Session) Abandon() {
	s.Stop()
	s.cancel()
}

// Ended is closed when every stream has ended.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// Wait blocks until every stream has ended, or ctx is done.
func (s *Session) Wait(ctx context.Context) error {
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Errors returns the error that ended each stream which did not just stop, the
// first of each way of ending.
func (s *Session) Errors() error {
	seen := map[ledger.End]bool{}
	var errs []error
	for _, st := range s.streams {
		st.mu.Lock()
		end, err := st.end, st.err
		st.mu.Unlock()
		if err != nil && !seen[end] {
			seen[end] = true
			errs = append(errs, fmt.Errorf("stream %d ended (%s): %w", st.id, end, err))
		}
	}
	return errors.Join(errs...)
}
