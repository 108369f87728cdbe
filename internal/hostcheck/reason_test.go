package hostcheck

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// layers builds a stack, upper first.
func layers(nodes ...*Node) *Node {
	for i := range len(nodes) - 1 {
		nodes[i].Below = append(nodes[i].Below, nodes[i+1])
	}
	return nodes[0]
}

func node(kind string, volatile, protected, flushes Tri) *Node {
	return &Node{Kind: kind, Name: "x", Cache: Cache{Volatile: volatile, Protected: protected, Flushes: flushes}}
}

func TestReasonOverTheStack(t *testing.T) {
	folder := func() *Node { return node("folder", No, NotKnown, Yes) }
	fs := func(f Tri) *Node { return node("mount", No, NotKnown, f) }
	disk := func(v, p, f Tri) *Node { return node("disk", v, p, f) }
	for name, c := range map[string]struct {
		top  *Node
		want Level
		says string
	}{
		"no cache at all":                         {layers(folder(), fs(Yes), disk(No, NotKnown, NotKnown)), OK, "no volatile cache"},
		"a cache that is flushed":                 {layers(folder(), fs(Yes), disk(Yes, No, Yes)), OK, "flushes reach disk x"},
		"barriers off over a cache":               {layers(folder(), fs(No), disk(Yes, No, Yes)), Critical, "mount x does not pass them on"},
		"barriers off, no cache":                  {layers(folder(), fs(No), disk(No, NotKnown, Yes)), OK, "no volatile cache"},
		"barriers off, protected":                 {layers(folder(), fs(No), disk(Yes, Yes, Yes)), OK, "protected"},
		"barriers off, protection unknown":        {layers(folder(), fs(No), disk(Yes, NotKnown, Yes)), Critical, "volatile cache"},
		"barriers off, cache unknown":             {layers(folder(), fs(No), disk(NotKnown, NotKnown, Yes)), Unknown, "could not be read"},
		"a layer of which it is not known":        {layers(folder(), fs(NotKnown), disk(Yes, No, Yes)), Unknown, "could not be read"},
		"the disk tells nothing, flushes arrive":  {layers(folder(), fs(Yes), disk(NotKnown, NotKnown, Yes)), OK, "flushes reach"},
		"the disk tells nothing":                  {layers(folder(), fs(Yes), disk(NotKnown, NotKnown, NotKnown)), Unknown, "could not be read"},
		"a controller without battery":            {layers(folder(), fs(Yes), node("volume", Yes, No, No)), Critical, "acknowledges them without writing"},
		"a controller with a battery":             {layers(folder(), fs(Yes), node("volume", Yes, Yes, No)), OK, "protected"},
		"a controller with one that is not known": {layers(folder(), fs(Yes), node("volume", Yes, NotKnown, No)), Critical, "volatile cache"},
		"memory":                            {layers(folder(), node("tmpfs", Yes, No, No)), Critical, "volatile"},
		"a battery over members' own cache": {layers(folder(), node("volume", Yes, Yes, No), disk(Yes, No, Yes)), Critical, "volume x does not pass them on"},
		"nothing below":                     {node("folder", NotKnown, NotKnown, NotKnown), Unknown, "could not be read"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Report{Tops: []*Node{c.top}}
			r.Judge()
			require.Equal(t, c.want, r.Level, r.Verdict)
			require.Contains(t, r.Verdict, c.says)
			begins := map[Level]string{OK: saySafe, Critical: sayLost, Unknown: sayUnknown}[c.want]
			require.Contains(t, r.Verdict, begins)
		})
	}
	t.Run("nothing at all", func(t *testing.T) {
		var r Report
		r.Judge()
		require.Equal(t, Unknown, r.Level)
	})
	t.Run("one half of a mirror", func(t *testing.T) {
		md := node("raid", No, NotKnown, Yes)
		md.Below = []*Node{disk(Yes, No, Yes), disk(NotKnown, NotKnown, NotKnown)}
		r := Report{Tops: []*Node{layers(folder(), fs(Yes), md)}}
		r.Judge()
		require.Equal(t, Unknown, r.Level, "a member that is not known is not made good by the other")
	})
	t.Run("a setting of the database", func(t *testing.T) {
		top := layers(folder(), fs(Yes), disk(Yes, No, Yes))
		top.Add(Critical, "innodb_flush_log", "innodb_flush_log_at_trx_commit is 2")
		r := Report{Tops: []*Node{top}}
		r.Judge()
		require.Equal(t, Critical, r.Level)
		require.Contains(t, r.Verdict, "innodb_flush_log_at_trx_commit is 2")
	})
}

func TestWorst(t *testing.T) {
	require.Equal(t, OK, Worst())
	require.Equal(t, Warning, Worst(OK, Warning))
	require.Equal(t, Unknown, Worst(Warning, Unknown), "what is unknown is never hidden by a warning")
	require.Equal(t, Critical, Worst(Unknown, Critical, OK))
}
