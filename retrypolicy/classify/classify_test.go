package classify_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/classify"
	"github.com/hubline-iot/hubline/transport"
)

func TestChainAsksInTurn(t *testing.T) {
	asked := ""
	say := func(name string, v classify.Verdict) classify.Func {
		return func(error) classify.Info {
			asked += name
			return classify.Info{Verdict: v}
		}
	}
	got := classify.Chain(say("a", classify.VerdictUndecided), nil, say("b", classify.VerdictSucceed),
		say("c", classify.VerdictFail))(transport.Network)
	if got.Verdict != classify.VerdictSucceed || asked != "ab" {
		t.Errorf("%+v, asked %s", got, asked)
	}
	if got := classify.Chain(nil, say("d", classify.VerdictUndecided))(transport.Network); got != (classify.Info{}) {
		t.Errorf("nobody decided, and yet %+v", got)
	}
}

func TestFromKindJudgesByTheFilter(t *testing.T) {
	c := classify.FromKind(func(err error) (transport.Kind, bool) {
		return transport.Untrusted, errors.Is(err, os.ErrPermission)
	})
	if info := c(fmt.Errorf("dial: %w", os.ErrPermission)); info.Verdict != classify.VerdictFail ||
		info.Kind != transport.Untrusted {
		t.Errorf("%+v", info)
	}
	if info := c(io.EOF); info != (classify.Info{}) {
		t.Errorf("%+v", info)
	}
	if info := c(retrypolicy.Permanent(os.ErrPermission)); info != (classify.Info{}) {
		t.Errorf("%+v", info)
	}
}

func TestOfKindIsTheJudgementOfTheFilter(t *testing.T) {
	for _, r := range errfilter.Rules() {
		got := classify.OfKind(r.Kind)
		if (got.Verdict == classify.VerdictAgain) != errfilter.OfKind(r.Kind).Retry ||
			got.Verdict == classify.VerdictUndecided ||
			got.Kind != r.Kind || got.Safe == classify.SafeNo {
			t.Errorf("%v: %+v", r.Kind, got)
		}
	}
}
