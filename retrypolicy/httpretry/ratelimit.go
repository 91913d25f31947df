package httpretry

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// Limit is the limit that a service announces.
type Limit struct {
	// PerSecond is the rate of requests that keeps to all announced quotas.
	PerSecond float64
	// Wait is the time until a used-up quota has something left again. 0: none is used up.
	Wait time.Duration
}

// ParseRateLimit reads the fields RateLimit and RateLimit-Policy of an answer: the requests that
// remain until a reset, or else the quota and its window. Of several limits the lowest rate and the
// longest wait count. It returns false if there is none that it can use. A malformed field is
// ignored, and so are quotas of bytes or of concurrent requests. Partition keys are not compared:
// the limits are those of the answered request.
//
// Source: draft-ietf-httpapi-ratelimit-headers-10.
func ParseRateLimit(h http.Header) (limit Limit, ok bool) {
	policies := parseQuotas(h.Values("RateLimit-Policy"), "q")
	limits := parseQuotas(h.Values("RateLimit"), "r")
	limit.PerSecond = math.Inf(1)
	for _, l := range limits {
		at := slices.IndexFunc(policies, func(p quota) bool { return p.name == l.name })
		if at >= 0 && !policies[at].ofRequests() {
			continue
		}
		reset, hasReset := l.number["t"]
		if hasReset && l.number["r"] == 0 {
			limit.Wait = max(limit.Wait, kit.OfFloat(float64(reset)*float64(time.Second)))
		}
		if reset > 0 {
			limit.PerSecond = min(limit.PerSecond, rate(l.number["r"], reset))
			if at >= 0 {
				policies = slices.Delete(policies, at, at+1)
			}
		}
	}
	for _, p := range policies {
		if window := p.number["w"]; window > 0 && p.ofRequests() {
			limit.PerSecond = min(limit.PerSecond, rate(p.number["q"], window))
		}
	}
	if math.IsInf(limit.PerSecond, 1) {
		return Limit{}, false
	}
	return limit, true
}

// rate spreads n requests over a time. With none left, the next one comes at its end.
func rate(n, seconds int64) float64 { return float64(max(n, 1)) / float64(seconds) }

// quota is an item of either field.
type quota struct {
	name   string
	number map[string]int64 // the parameters that are whole numbers
	unit   string
}

func (q quota) ofRequests() bool { return q.unit == "" || q.unit == "requests" }

// parseQuotas parses a list of items (RFC 9651, 3.1) whose values are strings and that have a
// parameter required, a whole number from 0. It returns nil for a malformed list.
func parseQuotas(fields []string, required string) (list []quota) {
	p := fieldParser{rest: strings.Join(fields, ",")}
	for p.space(); p.rest != "" && !p.bad; {
		q := quota{number: map[string]int64{}}
		q.name = p.text()
		for p.take(';') {
			p.space()
			p.parameter(&q)
		}
		if n, has := q.number[required]; !has || n < 0 || q.number["t"] < 0 || q.number["w"] < 0 {
			return nil
		}
		list = append(list, q)
		if p.space(); p.rest != "" {
			p.must(',')
			p.space()
			p.bad = p.bad || p.rest == "" // a comma at the end
		}
	}
	if p.bad {
		return nil
	}
	return list
}

// fieldParser parses structured fields (RFC 9651, 4.2). bad says that the field is malformed.
type fieldParser struct {
	rest string
	bad  bool
}

func (p *fieldParser) space() { p.rest = strings.TrimLeft(p.rest, " \t") }

func (p *fieldParser) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *fieldParser) must(c byte) { p.bad = !p.take(c) || p.bad }

// until takes everything before the first of the bytes in ends.
func (p *fieldParser) until(ends string) (s string) {
	at := strings.IndexAny(p.rest, ends)
	if at < 0 {
		at = len(p.rest)
	}
	s, p.rest = p.rest[:at], p.rest[at:]
	return s
}

// text parses a quoted string.
func (p *fieldParser) text() string {
	var b strings.Builder
	for p.must('"'); !p.bad; {
		b.WriteString(p.until(`"\`))
		if p.take('"') {
			return b.String()
		}
		p.must('\\')
		if p.bad || p.rest == "" || p.rest[0] != '"' && p.rest[0] != '\\' {
			break
		}
		b.WriteByte(p.rest[0])
		p.rest = p.rest[1:]
	}
	p.bad = true
	return ""
}

// parameter parses a key and its value. The values of unknown parameters are comments.
func (p *fieldParser) parameter(q *quota) {
	key := p.until(" \t;,=\"")
	p.bad = p.bad || key == ""
	if !p.take('=') {
		return
	}
	if strings.HasPrefix(p.rest, `"`) {
		if text := p.text(); key == "qu" {
			q.unit = text
		}
		return
	}
	value := p.until(" \t;,")
	n, ok := whole(value)
	switch {
	case ok:
		q.number[key] = n
	case value == "" || strings.Contains("q r t w", key):
		p.bad = true
	}
}

// whole parses an integer of at most 15 digits (RFC 9651, 3.3.1).
func whole(s string) (n int64, ok bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && s[0] != '+' && len(strings.TrimPrefix(s, "-")) <= 15
}
