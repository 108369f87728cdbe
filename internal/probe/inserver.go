package probe

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A chunk is one call of the procedure: short, so that the probe can be interrupted and shows its rate.
const (
	chunkTime    = 200 * time.Millisecond
	chunkCommits = 2000
)

// procedure returns the DDL of the loop, which is the same but for the schema's name. SYSDATE is the clock's own time, also
// within a statement. The latencies come back as text, so that nothing but the rows of the probe is written.
func (p *place) procedure() string {
	return "CREATE PROCEDURE " + p.quoted(chunkName) + ` (IN most INT UNSIGNED, IN microseconds BIGINT)
MODIFIES SQL DATA
SQL SECURITY INVOKER
BEGIN
  DECLARE made INT UNSIGNED DEFAULT 0;
  DECLARE began, earlier, later DATETIME(6);
  DECLARE latencies LONGTEXT CHARACTER SET ascii DEFAULT '';
  SET began = SYSDATE(6), later = began;
  WHILE made < most AND TIMESTAMPDIFF(MICROSECOND, began, later) < microseconds DO
    SET earlier = later;
    ` + p.insert("'"+filler+"'") + `;
    SET later = SYSDATE(6);
    SET made = made + 1, latencies = CONCAT(latencies, TIMESTAMPDIFF(MICROSECOND, earlier, later), ' ');
  END WHILE;
  SELECT latencies;
END`
}

// chunk is how many commits the next call makes at most, and for how long.
func (g *goal) chunk() (n uint64, left time.Duration) {
	n = chunkCommits
	if g.most > 0 {
		n = min(n, g.most-g.commits)
	}
	return n, min(chunkTime, max(time.Millisecond, g.limit-time.Since(g.began)))
}

// callChunks calls the procedure until the goal is reached.
func callChunks(ctx context.Context, c *sql.Conn, own *place, g *goal) error {
	for !g.reached() {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, left := g.chunk()
		var text string
		// In the text: a procedure's results come back to a prepared statement in another form.
		call := fmt.Sprintf("CALL %s(%d, %d)", own.quoted(chunkName), n, left.Microseconds())
		if err := c.QueryRowContext(context.Background(), call).Scan(&text); err != nil {
			return fmt.Errorf("call the probe's procedure: %w", err)
		}
		if err := addChunk(g.meter, text); err != nil {
			return err
		}
	}
	return nil
}

// errClock: nothing that was measured since can be used.
var errClock = errors.New("the server's clock was set during the probe: run it again")

// addChunk counts what a call has made: within the loop the latency of a commit is all the time there is.
func addChunk(m *meter, text string) error {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return errors.New("the probe's procedure made no commit")
	}
	for _, f := range fields {
		us, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return fmt.Errorf("read what the probe's procedure measured: %w", err)
		}
		if us < 0 || us > time.Hour.Microseconds() {
			return errClock
		}
		took := time.Duration(us) * time.Microsecond
		m.add(took, took)
	}
	return nil
}
