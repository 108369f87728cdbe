package httprelay

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

func FuzzAnswer(f *testing.F) {
	list, err := Load()
	require.NoError(f, err)
	for _, text := range []string{
		`{"ison":false}`, `{"id":1,"output":false}`, `false`, `{"StatusSTS":{"POWER2":"OFF"}}`, `{"Outputs":[{},{"ID":2,"State":0}]}`,
		`{"outputs":[{},{"state":0}]}`, `{"ison":false,"ison":true}`, `{"ison":0}`, `[[[[`, `{"a":{"b":[1,{"c":null}]}}`, `{"ison":false}x`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := parseJSON(b)
		if err != nil {
			return
		}
		for _, p := range list {
			state, seen := p.state.read(v, 2)
			if state == powerctl.Unknown {
				continue
			}
			got, ok := p.state.text(v, 2)
			require.True(t, ok)
			require.Equal(t, p.state.meaning[got], state)
			require.NotEmpty(t, seen)
			for _, k := range p.state.conditions {
				require.True(t, k.holds(v, 2))
			}
		}
	})
}

func FuzzProfile(f *testing.F) {
	entries, err := embedded.ReadDir("profiles")
	require.NoError(f, err)
	for _, e := range entries {
		b, err := embedded.ReadFile("profiles/" + e.Name())
		require.NoError(f, err)
		f.Add(string(b))
	}
	f.Add("off: {method: GET, path: /%zz}")
	f.Add("on: {path: '?'}\nstate: {get: ''}\nheaders: {X: 'ü'}")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseProfile("x.yaml", []byte(text))
		if err != nil {
			var fe *FileError
			require.True(t, errors.As(err, &fe), "%v", err)
			return
		}
		for _, c := range []command{p.off, p.on} {
			require.NotContains(t, decoded(string(c.path)+string(c.body)), "toggle")
			_, err := http.NewRequest(c.method, "http://host"+c.path.fill(1), io.NopCloser(strings.NewReader(c.body.fill(1))))
			require.NoError(t, err)
		}
	})
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Digest realm="r", nonce="n", qop="auth"`)
	f.Add(`Digest realm="r\"", nonce="n", qop=auth, algorithm=SHA-256, stale=TRUE, userhash=true`)
	f.Add(`Digest `)
	f.Fuzz(func(t *testing.T, header string) {
		ch, err := findChallenge(http.Header{"Www-Authenticate": {header}})
		if err != nil {
			return
		}
		c := &conversation{o: &Outlet{c: Config{User: "u", Password: powerctl.NewSecret("hunter2")}}, challenge: ch}
		req, err := http.NewRequest(http.MethodGet, "http://h/x?y=z", nil)
		require.NoError(t, err)
		require.NoError(t, c.authorize(req))
		require.NotContains(t, req.Header.Get("Authorization"), "hunter2")
	})
}
