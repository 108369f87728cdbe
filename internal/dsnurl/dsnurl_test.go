package dsnurl

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParts(t *testing.T) {
	u, err := Parse("b://al%40x:p%3Aw@[::1]:77/d/e?y=2&x=%20", "a", "b")
	require.NoError(t, err)
	require.NotNil(t, u.Password)
	assert.Equal(t, "p:w", *u.Password)
	u.Password = nil
	assert.Equal(t, URL{User: "al@x", Host: "::1", Port: 77, Path: "d/e", Params: []Param{{"x", " "}, {"y", "2"}}}, u)

	u, err = Parse("a://al@", "a")
	require.NoError(t, err)
	assert.Equal(t, URL{User: "al"}, u)
	u, err = Parse("a://al:@h", "a")
	require.NoError(t, err)
	require.NotNil(t, u.Password, "an empty password is one")
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"another scheme":       {"c://u@h", ErrForm.Error()},
		"no scheme":            {"u@h", ErrForm.Error()},
		"no user":              {"a://h", "user is missing"},
		"an empty user":        {"a://:p@h", "user is missing"},
		"port 0":               {"a://u@h:0", "1 to 65535"},
		"no port":              {"a://u@h:", "port is empty"},
		"a host of two":        {"a://u@h,i", "host must be"},
		"an IPv4 in brackets":  {"a://u@[1.2.3.4]", ErrForm.Error()},
		"a parameter twice":    {"a://u@h?x=1&x=2", `"x" is given 2 times`},
		"a fragment":           {"a://u@h#f", ErrForm.Error()},
		"an empty fragment":    {"a://u@h#", ErrForm.Error()},
		"a bad escape":         {"a://u@h?x=%zz", ErrForm.Error()},
		"an @ in the password": {"a://u:se@cret@h", ErrForm.Error()},
		"a / in the password":  {"a://u:se/cret@h", ErrForm.Error()},
		"a ? in the password":  {"a://u:se?cret=1@h", ErrForm.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.text, "a", "b")
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "cret")
		})
	}
}

// A password that is encoded comes back, and one that is not is never quoted.
func FuzzParse(f *testing.F) {
	f.Add("secret", "h:1/d?x=1")
	f.Add("a@b", "[::1]")
	f.Add("%zz#", "h?x=1&x=2")
	f.Fuzz(func(t *testing.T, password, rest string) {
		if u, err := Parse("a://u:"+url.QueryEscape(password)+"@h/d", "a"); strings.Contains(password, " ") {
			return // written + there
		} else {
			require.NoError(t, err)
			require.Equal(t, password, *u.Password)
		}
		const secret = "Zq9Zq9"
		if _, err := Parse("a://u:"+secret+password+"@"+rest, "a"); err != nil && !strings.Contains(rest, secret) {
			require.NotContains(t, err.Error(), secret)
		}
	})
}
