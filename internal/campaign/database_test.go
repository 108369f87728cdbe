package campaign

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"

	"plugpull/internal/usage"
)

func TestSameServer(t *testing.T) {
	a := map[string]string{"hostname": "h", "port": "3306", "datadir": "/d/", "version": "10.11.1"}
	with := func(k, v string) map[string]string { m := maps.Clone(a); m[k] = v; return m }
	assert.NoError(t, sameServer(a, with("version", "11.4")), "a server may be upgraded")
	assert.NoError(t, sameServer(a, with("server_uuid", "x")), "only one of them has it")
	for _, k := range []string{"hostname", "port", "datadir"} {
		err := sameServer(a, with(k, "other"))
		assert.True(t, usage.Is(err), "another server is a mistake of usage, never a loss")
		assert.ErrorContains(t, err, k)
	}
	assert.Error(t, sameServer(with("server_uuid", "x"), with("server_uuid", "y")))
}
