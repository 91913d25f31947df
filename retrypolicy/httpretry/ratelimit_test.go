package httpretry_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
)

// The examples of the draft, and what is malformed by RFC 9651.
func TestParseRateLimit(t *testing.T) {
	none := httpretry.Limit{}
	for _, c := range []struct {
		name           string
		limits, policy []string
		want           httpretry.Limit
	}{
		{"nothing", nil, nil, none},
		{"a quota and its window", nil, []string{`"default";q=100;w=10`}, httpretry.Limit{PerSecond: 10}},
		{"the lowest of several", nil, []string{`"permin";q=50;w=60,"perhr";q=1000;w=3600`},
			httpretry.Limit{PerSecond: 1000. / 3600}},
		{"in two fields", nil, []string{`"burst";q=100;w=60`, `"daily";q=1000;w=86400`},
			httpretry.Limit{PerSecond: 1000. / 86400}},
		{"a partition key", nil, []string{`"peruser";q=100;w=60;pk=:cHsdsRa894==:`}, httpretry.Limit{PerSecond: 100. / 60}},
		{"bytes", []string{`"peruser";r=300000000;t=60`}, []string{`"peruser";q=65535;qu="content-bytes";w=10`}, none},
		{"requests by name", nil, []string{`"a";q=5;qu="requests";w=1`}, httpretry.Limit{PerSecond: 5}},
		{"no window", nil, []string{`"default";q=100`}, none},
		{"what remains", []string{`"default";r=50;t=30`}, nil, httpretry.Limit{PerSecond: 50. / 30}},
		{"what remains counts before its policy", []string{`"a";r=90;t=10`}, []string{`"a";q=100;w=60`},
			httpretry.Limit{PerSecond: 9}},
		{"another policy counts too", []string{`"a";r=90;t=10`}, []string{`"a";q=100;w=60, "b";q=1;w=1`},
			httpretry.Limit{PerSecond: 1}},
		{"no reset", []string{`"default";r=999;pk=:dHJpYWwxMjEzMjM=:`}, nil, none},
		{"no reset, but a policy", []string{`"default";r=999`}, []string{`"default";q=1000;w=100`},
			httpretry.Limit{PerSecond: 10}},
		{"used up", []string{`"problemPolicy";r=0;t=10`}, nil, httpretry.Limit{PerSecond: .1, Wait: 10 * time.Second}},
		{"one of two used up", []string{`"a";r=0;t=7, "b";r=10;t=1`}, nil,
			httpretry.Limit{PerSecond: 1. / 7, Wait: 7 * time.Second}},
		{"an escaped name and comments", []string{`"a\"\\;r=0,";acme-x=token*/;flag;r=1;t=1;at=1.5;on=?1`}, nil,
			httpretry.Limit{PerSecond: 1}},
		{"longer than a Duration", []string{`"a";r=0;t=999999999999999`}, nil,
			httpretry.Limit{PerSecond: 1 / 999999999999999., Wait: math.MaxInt64}},
		{"the last of two parameters counts", []string{`"a";r=1;r=3;t=1`}, nil, httpretry.Limit{PerSecond: 3}},
		{"a malformed field does not hide the other", []string{`"a";r=1;t=`}, []string{`"a";q=2;w=1`},
			httpretry.Limit{PerSecond: 2}},
	} {
		h := http.Header{"Ratelimit": c.limits, "Ratelimit-Policy": c.policy}
		if got, ok := httpretry.ParseRateLimit(h); got != c.want || ok != (c.want != none) {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, ok, c.want)
		}
	}
	for _, bad := range []string{
		`default;r=1;t=1`, `"a";t=1`, `"a";r=-1;t=1`, `"a";r=1;t=-1`, `"a";r=1;t=1,`, `"a";r=1;t=1 "b";r=1;t=1`,
		`"a;r=1;t=1`, `"a\n";r=1;t=1`, `"a\`, `"a";r=1.5;t=1`, `"a";r="1";t=1`, `"a";r=1;t=1;`, `"a";r=1;t=1;=2`,
		`"a";r=1;t=1000000000000000`, `"a";r=1;t=1, ,"b";r=1;t=1`, `limit=1`, `,`, `"a" r=1`, `"a";r=-;t=1`,
	} {
		if got, ok := httpretry.ParseRateLimit(http.Header{"Ratelimit": {bad}}); ok {
			t.Errorf("%s: %+v, want nothing", bad, got)
		}
	}
}

func FuzzParseRateLimit(f *testing.F) {
	f.Add(`"default";r=50;t=30`, `"burst";q=100;w=60,"daily";q=1000;w=86400;pk=:aa==:`)
	f.Fuzz(func(t *testing.T, limit, policy string) {
		h := http.Header{"Ratelimit": {limit}, "Ratelimit-Policy": {policy}}
		got, ok := httpretry.ParseRateLimit(h)
		if ok && !(got.PerSecond > 0 && got.PerSecond < math.MaxFloat64) || got.Wait < 0 ||
			!ok && got != (httpretry.Limit{}) {
			t.Errorf("%+v, %v", got, ok)
		}
	})
}
