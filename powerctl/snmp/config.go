package snmp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gosnmp/gosnmp"

	"plugpull/powerctl"
)

// Version of SNMP.
type Version string

// The versions. With 1 and 2c the community goes over the network in clear, and
// an answer can be forged by anybody on its way.
const (
	V1  Version = "1"
	V2c Version = "2c"
	V3  Version = "3"
)

func (v Version) wire() gosnmp.SnmpVersion {
	switch v {
	case V1:
		return gosnmp.Version1
	case V3:
		return gosnmp.Version3
	}
	return gosnmp.Version2c
}

// User is an SNMPv3 user (RFC 3414). Without Auth neither the device's answers
// nor the user are authenticated.
type User struct {
	Name string
	Auth string // "", md5, sha, sha224, sha256, sha384, sha512
	// AuthPass and PrivPass have at least 8 characters.
	AuthPass powerctl.Secret
	Priv     string // "", des, aes, aes192, aes256, aes192c, aes256c (c: Reeder's key extension)
	PrivPass powerctl.Secret
	Context  string
}

func authProtocols() map[string]gosnmp.SnmpV3AuthProtocol {
	return map[string]gosnmp.SnmpV3AuthProtocol{
		"": gosnmp.NoAuth, "md5": gosnmp.MD5, "sha": gosnmp.SHA, "sha224": gosnmp.SHA224,
		"sha256": gosnmp.SHA256, "sha384": gosnmp.SHA384, "sha512": gosnmp.SHA512,
	}
}

func privProtocols() map[string]gosnmp.SnmpV3PrivProtocol {
	return map[string]gosnmp.SnmpV3PrivProtocol{
		"": gosnmp.NoPriv, "des": gosnmp.DES, "aes": gosnmp.AES, "aes192": gosnmp.AES192,
		"aes256": gosnmp.AES256, "aes192c": gosnmp.AES192C, "aes256c": gosnmp.AES256C,
	}
}

func (u User) apply(g *gosnmp.GoSNMP) {
	g.SecurityModel = gosnmp.UserSecurityModel
	g.ContextName = u.Context
	switch {
	case u.Priv != "":
		g.MsgFlags = gosnmp.AuthPriv
	case u.Auth != "":
		g.MsgFlags = gosnmp.AuthNoPriv
	}
	g.SecurityParameters = &gosnmp.UsmSecurityParameters{
		UserName:               u.Name,
		AuthenticationProtocol: authProtocols()[u.Auth], AuthenticationPassphrase: u.AuthPass.Reveal(),
		PrivacyProtocol: privProtocols()[u.Priv], PrivacyPassphrase: u.PrivPass.Reveal(),
	}
}

// Pin is what the device and the outlet must say of themselves. Empty fields
// are taken from the first contact instead, so that a device that is swapped
// while plugpull runs is noticed in any case.
type Pin struct {
	SysObjectID string
	Serial      string
	OutletName  string
}

// Config describes one outlet. The caller resolves the secrets.
type Config struct {
	Address   string // host or host:port, of UDP; the port is 161 when missing
	Version   Version
	Community powerctl.Secret // of versions 1 and 2c
	User      User            // of version 3
	// Profiles are those to choose from: Load's, and a user's own.
	Profiles []*Profile
	Profile  string // a profile's name, or auto: by the device's sysObjectID
	// Index of the outlet in the profile's form ("3", "1.3"), or Name: the
	// outlet is then looked up, once, and its name is pinned.
	Index, Name string
	Pin         Pin
	Timeout     time.Duration // of one request and its answer; positive
	Retries     int           // of requests that change nothing
}

// Auto chooses the profile by the device's sysObjectID.
const Auto = "auto"

func (c *Config) problems() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(c.Address == "", "the address is missing")
	if _, _, err := splitAddress(c.Address); err != nil {
		errs = append(errs, err)
	}
	wrong(!slices.Contains([]Version{V1, V2c, V3}, c.Version), "the version is %q, want 1, 2c or 3", c.Version)
	if c.Version == V3 {
		errs = append(errs, c.User.problems()...)
	} else {
		// The library writes the length of a community into one byte.
		wrong(c.Community.Reveal() == "" || len(c.Community.Reveal()) > 127, "the community is missing or longer than 127 bytes")
	}
	wrong((c.Index == "") == (c.Name == ""), "want either the outlet's index or its name")
	wrong(c.Name != "" && c.Pin.OutletName != "" && c.Name != c.Pin.OutletName, "the outlet's name and the pinned name differ")
	wrong(c.Timeout <= 0, "the timeout is missing")
	wrong(c.Retries < 0 || c.Retries > 20, "the retries are %d, want 0 to 20", c.Retries)
	if c.Profile != Auto {
		p, err := Named(c.Profiles, c.Profile)
		if err == nil {
			_, err = newTarget(p, c)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (u User) problems() []error {
	var errs []error
	_, auth := authProtocols()[u.Auth]
	_, priv := privProtocols()[u.Priv]
	switch {
	case u.Name == "":
		errs = append(errs, errors.New("the SNMPv3 user is missing"))
	case !auth || !priv:
		errs = append(errs, fmt.Errorf("unknown SNMPv3 protocol %q or %q", u.Auth, u.Priv))
	case u.Auth == "" && u.Priv != "":
		errs = append(errs, errors.New("SNMPv3 has no privacy without authentication"))
	}
	if u.Auth != "" && len(u.AuthPass.Reveal()) < 8 || u.Priv != "" && len(u.PrivPass.Reveal()) < 8 {
		errs = append(errs, errors.New("an SNMPv3 passphrase has at least 8 characters"))
	}
	return errs
}
