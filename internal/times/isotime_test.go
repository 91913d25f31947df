package times_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/times"
)

const layout = "2006-01-02T15:04:05.000Z"

func TestAppendIsWhatPackageTimeWrites(t *testing.T) {
	for at := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() <= 9999; at = at.Add(217*time.Hour + 61*time.Second +
		7*time.Millisecond) {
		if got, want := string(times.AppendISO(nil, at)), at.Format(layout); got != want {
			t.Fatalf("Append = %s, want %s", got, want)
		}
		if got, ok := times.ParseISO(at.Format(layout)); !ok || !got.Equal(at) {
			t.Fatalf("Parse(%s) = %v, %v", at.Format(layout), got, ok)
		}
	}
}

func TestAppendKeepsToFourDigits(t *testing.T) {
	for at, want := range map[time.Time]string{
		time.Date(-1, 5, 6, 7, 8, 9, 0, time.UTC):    "0000-01-01T00:00:00.000Z",
		time.Date(10000, 5, 6, 7, 8, 9, 0, time.UTC): "9999-12-31T23:59:59.999Z",
		time.Unix(1<<62, 0):                          "9999-12-31T23:59:59.999Z",
		time.Unix(-1<<62, 0):                         "0000-01-01T00:00:00.000Z",
	} {
		if got := string(times.AppendISO(nil, at)); got != want || len(got) != times.ISOSize {
			t.Errorf("Append(%v) = %s, want %s", at, got, want)
		}
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	var buf [times.ISOSize]byte
	at := time.Now()
	if n := testing.AllocsPerRun(100, func() { times.AppendISO(buf[:0], at) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// form is the grammar of RFC 3339, which package time does not enforce strictly.
var form = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"2030-01-01T00:00:00.000Z", "2030-01-01T00:00:00Z", "2024-02-29T23:59:59.999999999+14:00", "2023-02-29T00:00:00Z",
		"2030-01-01T24:00:00Z",
		"2030-01-01T00:00:60Z", "2030-01-01T00:00:00.Z", "2030-01-01T00:00:00.1234567891Z", "0000-01-01T00:00:00-23:59",
		"2030-13-01T00:00:00Z", "",
		"2030-01-01T00:00:00", "2030-01-01 00:00:00Z", "2030-01-01T00:00:00+24:00", "2030-01-01T00:00:00Zx",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := times.ParseISO(s)
		want, err := time.Parse(time.RFC3339Nano, s)
		if ok != (err == nil && form.MatchString(s)) || ok && !got.Equal(want) {
			t.Errorf("Parse(%q) = %v, %v; package time says %v, %v", s, got, ok, want, err)
		}
	})
}
