package redfish

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

// requireNotSent switches off and on, and nothing of it may reach the device.
func requireNotSent(t *testing.T, s *service, o *Outlet, check func(error)) {
	t.Helper()
	for _, do := range []func(context.Context) (powerctl.Result, error){o.Off, o.On} {
		res, err := do(t.Context())
		require.ErrorIs(t, err, powerctl.ErrNotSent)
		var op *powerctl.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, powerctl.Result{}, res)
		requireNoSecret(t, err)
		check(err)
	}
	require.Empty(t, s.device.Commands())
}

func requireNoSecret(t *testing.T, v any) {
	t.Helper()
	for _, text := range []string{fmt.Sprint(v), fmt.Sprintf("%+v", v), fmt.Sprintf("%#v", v)} {
		for _, secret := range []string{"hunter2", simPassword, "token-"} {
			require.NotContains(t, text, secret)
		}
	}
}

func TestWrongDeviceIsSentNothing(t *testing.T) {
	for name, c := range map[string]struct {
		pdu   bool
		patch map[string]any
		want  powerctl.IdentityError
	}{
		"uuid":          {patch: map[string]any{"UUID": "2" + simUUID[1:]}, want: powerctl.IdentityError{What: "uuid", Want: simUUID, Got: "2" + simUUID[1:]}},
		"no uuid":       {patch: map[string]any{"UUID": nil}, want: powerctl.IdentityError{What: "uuid", Want: simUUID}},
		"zero uuid":     {patch: map[string]any{"UUID": "00000000-0000-0000-0000-000000000000"}, want: powerctl.IdentityError{What: "uuid", Want: simUUID}},
		"serial":        {patch: map[string]any{"SerialNumber": "SN-1"}, want: powerctl.IdentityError{What: "serial", Want: simSerial, Got: "SN-1"}},
		"no serial":     {patch: map[string]any{"SerialNumber": 4711}, want: powerctl.IdentityError{What: "serial", Want: simSerial}},
		"PDU's uuid":    {pdu: true, patch: map[string]any{"UUID": nil}, want: powerctl.IdentityError{What: "uuid", Want: simUUID}},
		"outlet's name": {pdu: true, patch: map[string]any{"UserLabel": "rack 3 server 8"}, want: powerctl.IdentityError{What: "label", Want: simLabel, Got: "rack 3 server 8"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startService(t)
			s.patch = c.patch
			o := s.outlet(t, func(conf *Config) {
				if c.pdu {
					onPDU(conf)
				}
			})
			requireNotSent(t, s, o, func(err error) {
				var ie *powerctl.IdentityError
				require.ErrorAs(t, err, &ie)
				require.Equal(t, c.want, *ie)
			})
			s.device.Force(powerctl.Off) // the off of another machine is no off either
			res, err := o.State(t.Context())
			require.Error(t, err)
			require.Equal(t, powerctl.Unknown, res.State)
		})
	}
}

func TestWhatTheDeviceAllows(t *testing.T) {
	const values = "ResetType@Redfish.AllowableValues"
	for name, c := range map[string]struct {
		reset   map[string]any
		refused bool
	}{
		"not listed":                   {map[string]any{values: []string{"GracefulShutdown", "ForceRestart", "PowerCycle", "PushPowerButton"}}, true},
		"empty list":                   {map[string]any{values: []string{}}, true},
		"no list":                      {map[string]any{values: nil}, false},
		"list in the action's info":    {map[string]any{values: nil, "@Redfish.ActionInfo": systemPath + "/ResetActionInfo"}, false},
		"action's info that is gone":   {map[string]any{values: nil, "@Redfish.ActionInfo": systemPath + "/None"}, true},
		"action's info elsewhere":      {map[string]any{values: nil, "@Redfish.ActionInfo": "https://elsewhere/x"}, true},
		"no target":                    {map[string]any{"target": nil}, true},
		"target on another host":       {map[string]any{"target": "//elsewhere/Actions/ComputerSystem.Reset"}, true},
		"target that is another thing": {map[string]any{"target": "/redfish/v1/Managers/1/Actions/Manager.Reset"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := startService(t)
			s.reset = c.reset
			o := s.outlet(t, nil)
			if c.refused {
				requireNotSent(t, s, o, func(error) {})
				return
			}
			res, err := powerctl.SwitchOff(t.Context(), o, powerctl.Policy{Deadline: time.Minute, Poll: time.Millisecond})
			require.NoError(t, err)
			require.True(t, res.IsOff())
		})
	}
	s := startService(t)
	s.reset = map[string]any{"PowerState@Redfish.AllowableValues": []string{"PowerCycle"}}
	requireNotSent(t, s, s.outlet(t, onPDU), func(err error) { require.ErrorIs(t, err, ErrNotAllowed) })
}

func TestLockedOutlet(t *testing.T) {
	s := startService(t)
	s.patch = map[string]any{"PowerControlLocked": true}
	o := s.outlet(t, onPDU)
	requireNotSent(t, s, o, func(err error) { require.ErrorIs(t, err, ErrLocked) })
	res, err := o.State(t.Context())
	require.NoError(t, err)
	require.Equal(t, powerctl.Fault, res.State)
	require.Contains(t, res.Raw, `"PowerControlLocked":true`)
}
