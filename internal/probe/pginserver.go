package probe

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// procedure returns the DDL of the loop, which is the same but for the schema's name. COMMIT works in it while it is called outside a
// transaction, and while it has no SET and no SECURITY DEFINER of its own. The latencies come back as text, so that nothing but
// the rows of the probe is written.
func (p *postgresPlace) procedure() string {
	return "CREATE PROCEDURE " + p.quoted(chunkName) + ` (most integer, microseconds bigint, INOUT latencies text) LANGUAGE plpgsql AS $body$
DECLARE
  made integer := 0;
  began timestamptz := clock_timestamp();
  earlier timestamptz;
  later timestamptz := began;
  took bigint[] := '{}';
BEGIN
  WHILE made < most AND extract(epoch FROM later - began) * 1000000 < microseconds LOOP
    earlier := later;
    ` + p.insert("'"+filler+"'") + `;
    COMMIT;
    later := clock_timestamp();
    made := made + 1;
    took[made] := round(extract(epoch FROM later - earlier) * 1000000);
  END LOOP;
  latencies := array_to_string(took, ' ');
END $body$`
}

// callPostgresChunks calls the procedure until the goal is reached.
func callPostgresChunks(ctx context.Context, c *pgx.Conn, own *postgresPlace, g *goal) error {
	for !g.reached() {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, left := g.chunk()
		var text string
		err := c.QueryRow(ctx, "CALL "+own.quoted(chunkName)+"($1, $2, '')", int32(n), left.Microseconds()).Scan(&text)
		if err != nil {
			return fmt.Errorf("call the probe's procedure: %w", err)
		}
		if err := addChunk(g.meter, text); err != nil {
			return err
		}
	}
	return nil
}
