package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"plugpull/powerctl"
	"plugpull/powerctl/bridge/labgrid"
	"plugpull/powerctl/bridge/nut"
	"plugpull/powerctl/bridge/pdudaemon"
	"plugpull/powerctl/bridge/powerman"
	"plugpull/powerctl/hidrelay"
	"plugpull/powerctl/httprelay"
	"plugpull/powerctl/ipmi"
	"plugpull/powerctl/quarch"
	"plugpull/powerctl/redfish"
	"plugpull/powerctl/serialrelay"
	"plugpull/powerctl/snmp"
)

// listDrivers prints what a bench file can name. It is the table of docs/power.md too.
func listDrivers(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DRIVER\tPROFILE\tDEVICES\tCLASS\tREAD-BACK\tTRIED AGAINST")
	rows, err := driverRows()
	if err != nil {
		return err
	}
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

func devices(vendor string, models []string) string {
	all := strings.Join(models, ", ")
	if word, _, _ := strings.Cut(vendor, " "); strings.HasPrefix(all, word) {
		return all
	}
	return vendor + " " + all
}

// driverRows has a row a driver, and one a profile of the drivers whose devices are data.
func driverRows() ([][]string, error) {
	var rows [][]string
	row := func(driver, profile, devices, class, readBack string, tried powerctl.Tried) {
		rows = append(rows, []string{driver, profile, devices, class, readBack, tried.String()})
	}
	snmps, err := snmp.Load()
	if err != nil {
		return nil, err
	}
	for _, p := range snmps {
		row("snmp", p.Name, devices(p.Vendor, p.Models), string(p.Class), "yes", powerctl.Tried(p.Tried))
	}
	row("ipmi", "", "BMCs with IPMI 2.0 (RMCP+)", "chassis", "yes", ipmi.Tried)
	row("redfish", "", "BMCs and PDUs with Redfish", "chassis, mains", "yes", redfish.Tried)
	https, err := httprelay.Load()
	if err != nil {
		return nil, err
	}
	for _, p := range https {
		row("http", p.Name, devices(p.Vendor, p.Models), string(p.Class), "yes", p.Tried)
	}
	row("serial", "", "relay boards: LCUS (CH340), KMTronic, Numato", "as wired", "yes; some LCUS no", serialrelay.Tried)
	row("hid", "", "relay boards: USBRelay1 to 8 (16c0:05df)", "as wired", "yes", hidrelay.Tried)
	row("hid", "", "relay boards: HIDRelay clones (0519:2018)", "as wired", "no", hidrelay.Tried)
	row("quarch", "", "Quarch power modules and breakers (TCP, REST, serial)", "drive", "yes", quarch.Tried)
	row("powerman", "", "what a powermand switches", "as wired", "as powermand does", powerman.Tried)
	row("nut", "", "outlets behind Network UPS Tools", "as wired", "yes", nut.Tried)
	row("pdudaemon", "", "what a pdudaemon switches", "as wired", "no", pdudaemon.Tried)
	row("labgrid", "", "a place of labgrid", "as wired", "where labgrid reads the device", labgrid.Tried)
	row("exec", "", "whatever your commands switch", "as you say", "with a state command", powerctl.TriedOwn)
	row("manual", "", "a person", "as you say", "what the person says", powerctl.TriedOwn)
	row("group", "", "several of these as one", "theirs", "when all do", powerctl.TriedOwn)
	return rows, nil
}
