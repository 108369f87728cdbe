package nut

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"plugpull/internal/clock"
	"plugpull/powerctl/bridge"
	"plugpull/powerctl/internal/tlspin"
)

// The wire is docs/net-protocol.txt of networkupstools/nut: a request a line, an answer a
// line or a list; words with spaces in quotes.

// ReplyError is an error that upsd answers.
type ReplyError struct{ Code string }

func (e *ReplyError) Error() string {
	text := "upsd answers ERR " + e.Code
	switch e.Code {
	case "DATA-STALE", "DRIVER-NOT-CONNECTED":
		text += ": its driver has lost the device or does not run"
	case "ACCESS-DENIED":
		text += ": look at the user's password and instcmds in upsd.users"
	case "UNKNOWN-UPS":
		text += ": give the name as it is in ups.conf; `upsc -l` lists them"
	}
	return text
}

var errMalformed = errors.New("not an answer of upsd")

const notSupported = "VAR-NOT-SUPPORTED"

// maxList bounds a list, in lines. Large PDUs have about 1500 variables.
const maxList = 8192

// replyError returns the error in an answer, or that it is no answer at all.
func replyError(line string) error {
	if rest, ok := strings.CutPrefix(line, "ERR "); ok {
		code, _, _ := strings.Cut(rest, " ")
		if code != "" && !strings.ContainsFunc(code, func(r rune) bool { return r != '-' && (r < 'A' || r > 'Z') }) {
			return &ReplyError{code}
		}
	}
	return fmt.Errorf("%w: %.64q", errMalformed, line)
}

func mustBe(line, want string) error {
	if line == want {
		return nil
	}
	return replyError(line)
}

// split takes a line apart into words. A word in quotes may have spaces; there a backslash
// goes before each quote, backslash and number sign, and before nothing else.
func split(line string) ([]string, error) {
	var words []string
	for i := 0; i < len(line); {
		var word strings.Builder
		quoted := line[i] == '"'
		if quoted {
			i++
		}
		for ; i < len(line) && (quoted || line[i] != ' ') && (!quoted || line[i] != '"'); i++ {
			if quoted && line[i] == '\\' {
				if i++; i == len(line) || !strings.ContainsRune("\"\\#", rune(line[i])) {
					return nil, fmt.Errorf("%w: a lone backslash: %.64q", errMalformed, line)
				}
			} else if !quoted && line[i] == '"' {
				return nil, fmt.Errorf("%w: a quote inside a word: %.64q", errMalformed, line)
			}
			word.WriteByte(line[i])
		}
		if quoted {
			if i >= len(line) {
				return nil, fmt.Errorf("%w: a quote is open: %.64q", errMalformed, line)
			}
			i++ // the closing quote
		}
		words = append(words, word.String())
		if i < len(line) {
			if line[i] != ' ' || i+1 == len(line) {
				return nil, fmt.Errorf("%w: %.64q", errMalformed, line)
			}
			i++
		}
	}
	return words, nil
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `#`, `\#`).Replace(s) + `"`
}

// quotable: upsd reads lines; what ends one cannot be part of a word.
func quotable(s string) bool {
	return len(s) <= 256 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// value reads the answer to GET VAR for exactly this variable of exactly this UPS.
func value(line, ups, name string) (string, error) {
	words, err := split(line)
	if err != nil {
		return "", err
	}
	if len(words) != 4 || words[0] != "VAR" || words[1] != ups || words[2] != name {
		return "", replyError(line)
	}
	return words[3], nil
}

// conversation is the requests of one method.
type conversation struct {
	*bridge.Conn
	ups   string
	heard []string // the answers to get
}

func (c *conversation) ask(request string) (clock.Instant, string, error) {
	at, err := c.Send(request)
	if err != nil {
		return at, "", err
	}
	line, err := c.Line()
	return at, line, err
}

// get reads a variable. There may be none.
func (c *conversation) get(name string) (v string, there bool, err error) {
	_, line, err := c.ask("GET VAR " + c.ups + " " + name)
	if err != nil {
		return "", false, err
	}
	c.heard = append(c.heard, line)
	v, err = value(line, c.ups, name)
	var re *ReplyError
	if errors.As(err, &re) && re.Code == notSupported {
		return "", false, nil
	}
	return v, err == nil, err
}

// first reads the first of these variables that there is and that is not empty.
func (c *conversation) first(names []string) (string, error) {
	for _, name := range names {
		if v, _, err := c.get(name); err != nil || v != "" {
			return v, err
		}
	}
	return "", nil
}

// list returns the rows of a list, without what each begins with.
func (c *conversation) list(what string) ([][]string, error) {
	_, line, err := c.ask("LIST " + what + " " + c.ups)
	if err != nil {
		return nil, err
	}
	if err := mustBe(line, "BEGIN LIST "+what+" "+c.ups); err != nil {
		return nil, err
	}
	var rows [][]string
	for range maxList {
		line, err := c.Line()
		if err != nil {
			return nil, err
		}
		if line == "END LIST "+what+" "+c.ups {
			return rows, nil
		}
		words, err := split(line)
		if err != nil {
			return nil, err
		}
		if len(words) < 3 || words[0] != what || words[1] != c.ups {
			return nil, fmt.Errorf("%w: %.64q in a list of %s", errMalformed, line, what)
		}
		rows = append(rows, words[2:])
	}
	return nil, bridge.ErrTooLong
}

// login gives the credentials. upsd looks at them with the command, not before.
func (c *conversation) login(user, password string) error {
	for _, request := range []string{"USERNAME " + quote(user), "PASSWORD " + quote(password)} {
		_, line, err := c.ask(request)
		if err == nil && line != "OK" {
			if err = replyError(line); errors.Is(err, errMalformed) {
				err = errMalformed // it could be the password that comes back
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// logout ends the conversation. What comes before the goodbye is the answer to another
// request, so that what was read before answered yet another one.
func (c *conversation) logout() error {
	_, line, err := c.ask("LOGOUT")
	if err == nil && line != "OK Goodbye" && line != "Goodbye..." { // the latter before NUT 2.4
		err = fmt.Errorf("%w before the goodbye: %.64q", bridge.ErrUnasked, line)
	}
	return err
}

func (c *conversation) startTLS(conf *tls.Config) error {
	_, line, err := c.ask("STARTTLS")
	if err != nil {
		return err
	}
	if err := mustBe(line, "OK STARTTLS"); err != nil {
		return err
	}
	return c.StartTLS(conf)
}

// CertificateError: upsd's certificate is not the pinned one.
type CertificateError = tlspin.CertificateError

// tlsConfig is nil without TLS. There is no way around verification.
func tlsConfig(c Config) (*tls.Config, error) {
	if !c.TLS {
		return nil, nil
	}
	conf, err := tlspin.Trust{CAFile: c.CAFile, Fingerprint: c.Fingerprint}.Config()
	if err != nil {
		return nil, err
	}
	conf.ServerName, _, _ = net.SplitHostPort(c.Address)
	return conf, nil
}
