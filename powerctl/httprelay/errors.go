package httprelay

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"plugpull/powerctl/internal/tlspin"
)

// StatusError is an HTTP status that is not the wanted one.
type StatusError struct{ Code int }

func (e *StatusError) Error() string {
	text := fmt.Sprintf("HTTP status %d %s", e.Code, http.StatusText(e.Code))
	switch {
	case e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden:
		text += ": check user and password, and that the device allows this interface"
	case e.Code >= 300 && e.Code < 400:
		text += ": redirects are not followed; give the address that the device really has"
	case e.Code == http.StatusNotFound:
		text += ": check the profile, and that the device's interface is switched on"
	}
	return text
}

// CertificateError: the device's certificate is not the pinned one.
type CertificateError = tlspin.CertificateError

// unreadableError: the device answered, and not with what was asked for.
type unreadableError struct{ error }

func (e *unreadableError) Unwrap() error { return e.error }

// errReply: a command's answer does not say that it was accepted.
var errReply = errors.New("the answer does not say that the command was accepted")

// hidden stands for the password wherever one could show.
const hidden = "(secret)"

// scrub takes the password out of what a device says: some repeat what they were sent.
func (o *Outlet) scrub(text string) string {
	password := o.c.Password.Reveal()
	if password == "" {
		return text
	}
	return strings.NewReplacer(password, hidden, url.QueryEscape(password), hidden, url.PathEscape(password), hidden).Replace(text)
}
