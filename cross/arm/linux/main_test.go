package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// For any content of the file, the message is JSON with the same number, or there is none.
func TestReadingIsJSON(t *testing.T) {
	source := filepath.Join(t.TempDir(), "temp")
	if _, err := reading(source, 1); err == nil {
		t.Error("a file that is not there has a reading")
	}
	for _, probe := range []struct {
		text string
		want float64
		good bool
	}{
		{"21500\n", 21500, true}, {" -3.25 ", -3.25, true}, {"+5", 5, true}, {"007", 7, true}, {".5", 0.5, true},
		{"5.", 5, true}, {"1e3", 1000, true}, {"0x1p4", 16, true},
		{"9007199254740993", 9007199254740993, true}, {"1e300", 1e300, true}, {"1_000.5", 1000.5, true},
		{"", 0, false}, {"NaN", 0, false}, {"Inf", 0, false}, {"-infinity", 0, false}, {"0x10", 0, false},
		{"1e400", 0, false}, {"21.5 C", 0, false}, {"12\x00", 0, false},
	} {
		if err := os.WriteFile(source, []byte(probe.text), 0o600); err != nil {
			t.Fatal(err)
		}
		body, err := reading(source, 7)
		if (err == nil) != probe.good {
			t.Errorf("%q: %v", probe.text, err)
		}
		if err != nil {
			continue
		}
		var got struct {
			N     int
			Value float64
		}
		if err := json.Unmarshal(body, &got); err != nil || got.N != 7 || got.Value != probe.want {
			t.Errorf("%q: %s, %v", probe.text, body, err)
		}
	}
}

func TestWatchdogOfAnotherProcess(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "1000000")
	for pid, want := range map[string]bool{"": true, strconv.Itoa(os.Getpid()): true, "1": false} {
		t.Setenv("WATCHDOG_PID", pid)
		if got := newService().watched; got != want {
			t.Errorf("WATCHDOG_PID=%s: watched is %v", pid, got)
		}
	}
}
