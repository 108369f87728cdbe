package hostcheck

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// WriteMetrics prints the report in the text format of Prometheus, for the textfile collector of node_exporter.
// What is not known has no sample, so that an alert on its absence is possible, and never a zero.
func (r *Report) WriteMetrics(w io.Writer) error {
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(&collector{r}); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	families, err := reg.Gather()
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	return nil
}

var (
	layer        = []string{"kind", "name"}
	levelDesc    = prometheus.NewDesc("plugpull_check_level", "How bad the whole is: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.", nil, nil)
	causeDesc    = prometheus.NewDesc("plugpull_check_cause_info", "A cause of the level, always 1.", []string{"level", "code", "kind", "name"}, nil)
	volatileDesc = prometheus.NewDesc("plugpull_layer_volatile_cache", "1 where the layer has a cache that needs power, 0 where it has none.", layer, nil)
	protectDesc  = prometheus.NewDesc("plugpull_layer_protected_cache", "1 where that cache is saved when power is lost.", layer, nil)
	flushDesc    = prometheus.NewDesc("plugpull_layer_flushes_pass", "1 where the layer passes flushes on or carries them out.", layer, nil)
)

// numbers are the Perf names that are exported, with their help. Others are left to performance data: a
// metric without a help text is of no use to anybody.
var numbers = map[string]string{
	"raid_backup_charge_percent":      "Charge of what backs the controller's cache.",
	"raid_backup_capacity_percent":    "Full-charge capacity of it over its design capacity.",
	"raid_backup_remaining_seconds":   "How long it holds the cache at the present draw.",
	"raid_backup_temperature_celsius": "Its temperature.",
	"raid_backup_cycles_total":        "Its charge cycles so far.",
	"drive_unsafe_shutdowns_total":    "Losses of power that the drive has counted.",
	"drive_power_cycles_total":        "Power cycles that the drive has counted.",
}

// collector makes metrics of one report. It describes nothing: which layers there are is known by the report alone.
type collector struct{ r *Report }

func (c *collector) Describe(chan<- *prometheus.Desc) {}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	sent := map[string]bool{} // the same layer may be below two others
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		for i := range labels {
			labels[i] = strings.ToValidUTF8(labels[i], "?")
		}
		key := d.String() + "\x00" + strings.Join(labels, "\x00")
		if sent[key] {
			return
		}
		sent[key] = true
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	send(levelDesc, prometheus.GaugeValue, float64(c.r.Level))
	type key struct{ level, code, kind, name string }
	var seen []key
	c.r.walk(func(n *Node) {
		for d, t := range map[*prometheus.Desc]Tri{volatileDesc: n.Cache.Volatile, protectDesc: n.Cache.Protected, flushDesc: n.Cache.Flushes} {
			if t != NotKnown {
				send(d, prometheus.GaugeValue, map[Tri]float64{Yes: 1}[t], n.Kind, n.Name)
			}
		}
		for _, f := range n.Findings {
			k := key{f.Level.String(), f.Code, n.Kind, n.Name}
			if f.Level != OK && !slices.Contains(seen, k) {
				seen = append(seen, k)
				send(causeDesc, prometheus.GaugeValue, 1, k.level, k.code, k.kind, k.name)
			}
		}
		c.numbers(n, send)
	})
}

func (c *collector) numbers(n *Node, send func(*prometheus.Desc, prometheus.ValueType, float64, ...string)) {
	var seen []string
	for _, p := range n.Perf {
		help, known := numbers[p.Name]
		if !known || slices.Contains(seen, p.Name+"\x00"+p.Label) {
			continue
		}
		seen = append(seen, p.Name+"\x00"+p.Label)
		kind := prometheus.GaugeValue
		if unit(p.Name) == "c" {
			kind = prometheus.CounterValue
		}
		send(prometheus.NewDesc("plugpull_"+p.Name, help, append(slices.Clone(layer), "label"), nil), kind, p.Value, n.Kind, n.Name, p.Label)
	}
}
