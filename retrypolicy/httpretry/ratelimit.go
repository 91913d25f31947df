package httpretry

import (
	"math"
	"net/http"
	"regexp"
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
	number map[string]int64 // the parameters q, r, t and w
	unit   string
}

func (q quota) ofRequests() bool { return q.unit == "" || q.unit == "requests" }

// A field is a list of strings with parameters (RFC 9651, 3.1). The values of unknown parameters
// are not parsed further.
var (
	quotedText = `"((?:[^"\\]|\\["\\])*)"`
	fieldParam = regexp.MustCompile(`;[ \t]*([^\s;,="]+)(?:=(?:` + quotedText + `|([^\s;,"]+)))?`)
	fieldItem  = regexp.MustCompile(quotedText + `((?:` + fieldParam.String() + `)*)`)
	fieldList  = regexp.MustCompile(`^[ \t]*` + fieldItem.String() + `(?:[ \t]*,[ \t]*` + fieldItem.String() + `)*[ \t]*$`)
)

// parseQuotas returns the items of a field that all have the parameter required, nil if the field
// is malformed.
func parseQuotas(fields []string, required string) (list []quota) {
	text := strings.Join(fields, ",")
	if !fieldList.MatchString(text) {
		return nil
	}
	for _, item := range fieldItem.FindAllStringSubmatch(text, -1) {
		q := quota{name: item[1], number: map[string]int64{}}
		for _, p := range fieldParam.FindAllStringSubmatch(item[2], -1) {
			switch key, quoted, value := p[1], p[2], p[3]; key {
			case "qu":
				q.unit = quoted
			case "q", "r", "t", "w":
				n, err := strconv.ParseUint(value, 10, 63)
				if err != nil || len(value) > 15 { // RFC 9651, 3.3.1
					return nil
				}
				q.number[key] = int64(n)
			}
		}
		if _, has := q.number[required]; !has {
			return nil
		}
		list = append(list, q)
	}
	return list
}
