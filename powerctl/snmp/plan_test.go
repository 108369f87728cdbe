package snmp

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
)

func TestPlan(t *testing.T) {
	const c = "318.1.1.12.3."
	plain := strings.TrimPrefix(e, ".")
	for name, x := range map[string]struct {
		change func(*Config)
		on     bool
		want   []string
	}{
		"first contact": {func(*Config) {}, false, []string{
			"GET 1.3.6.1.2.1.1.2.0 (sysObjectID) to 10.0.0.5:161 (SNMP v2c)",
			"GET " + plain + "318.1.1.12.1.6.0 (serial) to 10.0.0.5:161 (SNMP v2c)",
			"GET " + plain + c + "5.1.1.2.5 (outlet name) to 10.0.0.5:161 (SNMP v2c)",
			"GET " + plain + c + "5.1.1.4.5 (state), " + plain + c + "5.1.1.5.5 (pending), and the identity again, to 10.0.0.5:161 (SNMP v2c, profile apc-rpdu)",
			"SET " + plain + c + "3.1.1.4.5 = INTEGER 7 to 10.0.0.5:161 (SNMP v2c, profile apc-rpdu): cancel, when a command is pending or may be",
			"SET " + plain + c + "3.1.1.4.5 = INTEGER 2 to 10.0.0.5:161 (SNMP v2c, profile apc-rpdu)",
		}},
		"by name, version 3": {func(c *Config) {
			c.Index, c.Name, c.Version, c.Profile, c.Address = "", "db1", V3, "apc-msp", "[::1]:1161"
		}, true, []string{
			"GET of nothing, for the SNMPv3 engine, to [::1]:1161 (SNMP v3)",
			"GET 1.3.6.1.2.1.1.2.0 (sysObjectID) to [::1]:1161 (SNMP v3)",
			"GETNEXT from " + plain + `318.1.1.6.7.1.1.4, until the outlet "db1" is found, to [::1]:1161 (SNMP v3)`,
			"GET " + plain + "318.1.1.6.7.1.1.4.{S}.1.{N} (outlet name) to [::1]:1161 (SNMP v3)",
			"SET " + plain + "318.1.1.6.5.1.1.5.{S}.1.{N} = INTEGER 1 to [::1]:1161 (SNMP v3, profile apc-msp)",
		}},
		"auto": {func(c *Config) { c.Profile = Auto }, false, []string{
			"GET 1.3.6.1.2.1.1.2.0 (sysObjectID) to 10.0.0.5:161 (SNMP v2c)",
			"the SNMP profile is chosen on contact, by the sysObjectID: it says how to go on",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			conf := config(t, specs()[0], "10.0.0.5", V2c)
			x.change(&conf)
			require.Equal(t, x.want, outlet(t, conf).Plan(x.on))
		})
	}
}

// What was planned is what arrives.
func TestPlanIsKept(t *testing.T) {
	for _, sp := range specs() {
		for _, v := range versions() {
			a, o := startOne(t, sp, v, true, nil)
			plan := o.Plan(false)
			before := a.reads()
			_, err := o.Off(t.Context())
			require.NoError(t, err)
			var sets, gets []string
			for _, line := range plan {
				switch {
				case strings.HasPrefix(line, "SET") && !strings.Contains(line, "when a command is pending"):
					sets = append(sets, line)
				case strings.HasPrefix(line, "GET ") && !strings.Contains(line, "engine"):
					gets = append(gets, line)
				}
			}
			require.Len(t, gets, a.reads()-before, "%q", plan)
			require.Len(t, sets, len(a.writes()), "%q", plan)
			for i, w := range a.writes() {
				require.Contains(t, sets[i], "SET "+strings.TrimPrefix(w.oid, ".")+" = INTEGER ", "%q", plan)
			}
			require.Equal(t, []powerctl.State{powerctl.Off}, a.d.Commands())
		}
	}
}
