package main

import (
	"encoding/xml"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// The index of the raw library.
const raw = 0

// inventedOf returns results with simple figures: three rounds, in which the raw library has a rate
// of 100, 200 and 400.
func inventedOf(s *suite, others func(c *comparison, base, noise float64)) *results {
	p := plan{suite: s, peers: s.protocol.Peers, ways: []bool{false, true}, sizes: []int{100, 1024},
		windows: []int{1, 128}}
	r := &results{settings: settings{3, time.Second}, suite: s, Machine: "a machine",
		Missing: []string{"nobody"}, All: p.comparisons()}
	for _, c := range r.All {
		for round := range 3 {
			base := float64(int(100) << round)
			c.Senders[raw] = append(c.Senders[raw], Figures{Rate: base, CPU: 10_000, Allocs: 40, Bytes: 1400})
			others(c, base, 1+float64(round)/10) // 1, 1.1, 1.2
		}
	}
	return r
}

// invented returns invented results over MQTT.
func invented() *results {
	return inventedOf(suites[0], func(c *comparison, base, noise float64) {
		c.Senders[byLimit] = append(c.Senders[byLimit], Figures{Rate: base * 30, CPU: 100})
		c.Senders[byPaho] = append(c.Senders[byPaho], Figures{Rate: base * 2 * noise, CPU: 8_000, Allocs: 37, Bytes: 1300})
		c.Senders[byEngine] = append(c.Senders[byEngine], Figures{Rate: base * 20 * noise, CPU: 5_000})
		c.Senders[byEngineIDs] = append(c.Senders[byEngineIDs], Figures{Rate: base * 18 * noise, CPU: 5_500, Bytes: 24})
	})
}

func TestTablesOfAMQP(t *testing.T) {
	r := inventedOf(suites[2], func(c *comparison, base, noise float64) {
		c.Senders[byBatches] = append(c.Senders[byBatches], Figures{Rate: base * 5 * noise, CPU: 1_000, Allocs: 0.1,
			Bytes: 200})
		allocs := 42.0
		if c.TLS {
			allocs = 42.1
		}
		c.Senders[byTransfers] = append(c.Senders[byTransfers], Figures{Rate: base * 0.8 * noise, CPU: 11_000, Allocs: allocs,
			Bytes: 1500})
	})
	text := r.text()
	for _, line := range []string{
		"| Hubline, window 128 and more: times raw go-amqp | at least 0.95 | 5.50 | 5.50 | 5.50 | 5.50 |",
		"| 1 KiB | 128 | Hubline, no batches | 176 | 80 to 384 | 0.88 (0.80 to 0.96) | 42.00 | 1500 | 11.00 µs |",
		"| Hubline: allocations for a message more than raw go-amqp | at most 2 | -39.90 | -39.90 | -39.90 | -39.90 |",
		"| Hubline, no batches: allocations for a message more than raw go-amqp | at most 2 | 2.00 | 2.00 | **2.10** | " +
			"**2.10** |",
		"| body | window | sender | msg/s (median) | least to most | times raw go-amqp, by round | allocations/msg | B/msg " +
			"| CPU/msg |",
		"| 1 KiB | 128 | Hubline | 1,100 | 500 to 2,400 | 5.50 (5.00 to 6.00) | 0.10 | 200 | 1.00 µs |",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line is %q", line)
		}
	}
	if strings.Contains(text, "256 B") || strings.Contains(text, "CPU time") {
		t.Error("AMQP has a goal for CPU time")
	}
	if t.Failed() {
		t.Log(text)
	}
	if rows := r.charts(); len(rows) != 4 || len(rows[0]) != 2 || rows[0][0].Y != "times raw go-amqp" {
		t.Errorf("%+v", rows)
	}
}

func TestTables(t *testing.T) {
	r := invented()
	for _, c := range r.All {
		if c.Peer == "hub" && !c.TLS && c.Size == 100 && c.Window == 128 {
			for i := range c.Senders[byEngine] {
				c.Senders[byEngine][i].Rate = c.Senders[raw][i].Rate * 1.25
			}
		}
		if c.Peer == "bare" && c.Size == cpuSize {
			for i := range c.Senders[byEngine] {
				c.Senders[byEngine][i].CPU = 1_000
			}
		}
	}
	text := r.text()
	for _, line := range []string{
		"**Left out, because not installed: nobody.**",
		"| over mqtt, hub, window 128 and more: times raw paho | at least 1.5 | **1.25** | 22.00 | 22.00 | 22.00 |",
		"| over paho, everywhere: times raw paho | at least 0.95 | 2.20 | 2.20 | 2.20 | 2.20 |",
		"| over mqtt, everywhere: allocations for a message | 0 | 0.00 | 0.00 | 0.00 | 0.00 |",
		"part of raw paho's | at most 0.47 | **0.50** | 0.10 | **0.50** |",
		"<details><summary>mosquitto, TLS</summary>",
		"| 1 KiB | 128 | over mqtt | 4,400 | 2,000 to 9,600 | 22.00 (20.00 to 24.00) | 0.00 | 0 | 5.00 µs |",
		"| 1 KiB | 128 | over mqtt, ids | 3,960 | 1,800 to 8,640 | 19.80 (18.00 to 21.60) | 0.00 | 24 | 5.50 µs |",
		"| 256 B | 128 | raw paho | 200 | 100 to 400 | 1 | 40.00 | 1400 | 10.00 µs |",
	} {
		if !strings.Contains(text, line+"\n") && !strings.Contains(text, line+"\n\n") {
			t.Errorf("no line ends with %q", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestBetween(t *testing.T) {
	seen := ""
	for _, s := range suites {
		begin, end := s.marks()
		page, err := between([]byte("before\n"+begin+"old\n"+end+"after\n"), begin, end, "new\n")
		if want := "before\n" + begin + "new\n" + end + "after\n"; string(page) != want || err != nil {
			t.Errorf("%q, %v", page, err)
		}
		for _, page := range []string{"", begin, end, end + begin, seen} {
			if _, err := between([]byte(page), begin, end, "new\n"); err == nil {
				t.Errorf("%q has marks", page)
			}
		}
		seen += begin + end
	}
}

// The page of every suite has its marks.
func TestMarks(t *testing.T) {
	for _, s := range suites {
		page, err := os.ReadFile(s.page)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := s.marks()
		if _, err := between(page, begin, end, ""); err != nil {
			t.Error(err)
		}
	}
}

// The picture has a panel for each peer and kind of traffic, and in each a curve for each sender,
// also if not all was measured.
func TestPicturesShowEverySender(t *testing.T) {
	whole := invented()
	part := invented()
	part.All = part.where(func(c *comparison) bool { return c.Peer == "bare" && !c.TLS && c.Size == 100 && c.Window == 1 })
	for _, r := range []*results{whole, part} {
		rows := r.charts()
		picture, err := DrawCharts(rows)
		if err != nil || len(rows) != len(r.ways()) {
			t.Fatal(err, len(rows))
		}
		for _, row := range rows {
			if len(row) != len(r.peers()) || len(row[0].Curves) != len(r.suite.curves) ||
				len(row[0].Curves[0].Points) != len(row[0].Labels) {
				t.Errorf("%+v", row)
			}
		}
		if err := xml.Unmarshal(picture, new(struct{})); err != nil {
			t.Error(err)
		}
	}
}

// One round with real senders.
func TestMeasure(t *testing.T) {
	for _, s := range suites {
		p := plan{settings: settings{1, 5 * time.Millisecond}, suite: s, peers: []string{"bare"}, ways: []bool{true},
			sizes: []int{100}, windows: []int{16}, log: io.Discard}
		r, err := p.measure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := 1
		if s.cpu != nil {
			want = 2
		}
		if len(r.All) != want {
			t.Fatalf("%s: %d settings", s.protocol.Name, len(r.All))
		}
		for _, c := range r.All {
			for i, s := range s.protocol.Senders {
				if f := c.Senders[i]; len(f) != 1 || f[0].Rate <= 0 || f[0].CPU <= 0 {
					t.Errorf("%+v, %s: %+v", c.setting, s.Name, f)
				}
			}
		}
		p.peers = []string{"nobody"}
		if _, err := p.measure(t.Context()); err == nil {
			t.Error("there is a peer called nobody")
		}
	}
}

func TestFlags(t *testing.T) {
	for text, args := range map[string][]string{
		"-windows":   {"-windows", "1,x"},
		"-sizes":     {"-sizes", "0"},
		"-tls":       {"-tls", "maybe"},
		"-rounds":    {"-rounds", "0"},
		"no flag":    {"quick"},
		`no peer "x`: {"-peers", "x"},
		"mosquitto":  {"-peers", "mosquitto"},
	} {
		if err := suites[2].compare(args); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
