package statuscode

import (
	"slices"
	"testing"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

var senders = []From{Hub, Twin, Token, Storage, Upgrade, Proxy, Web}

// Any other success is not that of the service. Web and Proxy may give any.
func TestOnlyTheSuccessesThatAServiceGivesAreSuccesses(t *testing.T) {
	successes := map[From][]int{
		Hub: {204}, Twin: {200, 202, 204}, Token: {200, 202}, Storage: {201}, Upgrade: nil, Provisioning: {200, 202},
	}
	for status := 200; status < 300; status++ {
		for from, fine := range successes {
			if got := Of(status, from); (got.About == Fine) != slices.Contains(fine, status) ||
				got.About != Fine && got != (Meaning{transport.Protocol, Identity}) {
				t.Errorf("%d from %b: %v", status, from, got)
			}
		}
		for _, from := range []From{Proxy, Web} {
			if got := Of(status, from); got.About != Fine {
				t.Errorf("%d from %b: %v", status, from, got)
			}
		}
	}
}

// The meaning of a status is consistent with its retries: exactly the failures about Moment are
// retryable.
func TestRetriesHelpWhenTheFailureIsAboutTheMoment(t *testing.T) {
	for status := 100; status < 600; status++ {
		for _, from := range senders {
			m := Of(status, from)
			if m.About == Fine && status/100 != 2 {
				t.Errorf("%d from %b: about %d", status, from, m.About)
			}
			if m.About != Fine && (m.About == Moment) != errfilter.OfKind(m.Kind).Retry {
				t.Errorf("%d from %b: %v, about %d", status, from, m.Kind, m.About)
			}
		}
	}
}

// A second row for a status must differ from the rows before it; otherwise it is redundant.
func TestEachExceptionDiffers(t *testing.T) {
	for i, r := range table {
		if r.from == anywhere {
			continue
		}
		differs := false
		for _, from := range senders {
			before := ofRows(table[:i], r.status, from)
			differs = differs || r.from&from != 0 && before != r.Meaning
		}
		if !differs {
			t.Errorf("%d from %b is listed as an exception, and is none", r.status, r.from)
		}
	}
}

func ofRows(rows []row, status uint16, from From) (m Meaning) {
	for _, r := range rows {
		if r.from&from != 0 && (r.status == status || r.status == status/100) {
			m = r.Meaning
		}
	}
	return m
}

// These statuses differ by sender. All others have the same meaning everywhere.
func TestStatusesThatDifferBySender(t *testing.T) {
	const (
		invalid, protocol, forbidden, quota = transport.Invalid, transport.Protocol, transport.Forbidden, transport.Quota
	)
	want := map[int][7]transport.Kind{ // hub, twin, token, storage, upgrade, proxy, web
		400: {invalid, invalid, invalid, invalid, protocol, protocol, invalid},
		402: {quota, quota, quota, quota, forbidden, forbidden, quota},
		403: {quota, forbidden, quota, forbidden, forbidden, forbidden, forbidden},
		404: {5: protocol},
		405: {4: protocol, 5: forbidden},
		406: {4: protocol, 5: protocol},
		407: {5: transport.Unauthorized, 6: transport.Unauthorized},
		423: {6: transport.Conflict},
		424: {6: invalid},
		499: {6: invalid},
		508: {6: invalid},
		509: {6: transport.Throttled},
		511: {6: transport.Unauthorized},
	}
	for status := 400; status < 600; status++ {
		common := Of(status, Hub).Kind
		for i, from := range senders {
			got, expected := Of(status, from).Kind, common
			if kinds, ok := want[status]; ok && kinds[i] != 0 {
				expected = kinds[i]
			} else if common == transport.Unknown && from&(Twin|Web) != 0 {
				expected = invalid // unassigned: this request is at fault
			}
			if got != expected {
				t.Errorf("%d from sender %d: %v, want %v", status, i, got, expected)
			}
		}
	}
}

func TestInvalidStatuses(t *testing.T) {
	for _, status := range []int{-1, 0, 99, 600, 1 << 30} {
		if got := Of(status, Hub).Kind; got != transport.Protocol {
			t.Errorf("%d: %v", status, got)
		}
	}
}
