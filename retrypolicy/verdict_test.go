package retrypolicy_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

func TestChainAsksInTurn(t *testing.T) {
	asked := ""
	say := func(name string, v retrypolicy.Verdict) retrypolicy.Classifier {
		return func(error) retrypolicy.Info {
			asked += name
			return retrypolicy.Info{Verdict: v}
		}
	}
	got := retrypolicy.Chain(say("a", retrypolicy.VerdictUndecided), nil, say("b", retrypolicy.VerdictSucceed),
		say("c", retrypolicy.VerdictFail))(transport.Network)
	if got.Verdict != retrypolicy.VerdictSucceed || asked != "ab" {
		t.Errorf("%+v, asked %s", got, asked)
	}
	undecided := retrypolicy.Chain(nil, say("d", retrypolicy.VerdictUndecided))
	if got := undecided(transport.Network); got != (retrypolicy.Info{}) {
		t.Errorf("nobody decided, and yet %+v", got)
	}
}

func TestFromKindJudgesByTheFilter(t *testing.T) {
	c := retrypolicy.FromKind(func(err error) (transport.Kind, bool) {
		return transport.Untrusted, errors.Is(err, os.ErrPermission)
	})
	if info := c(fmt.Errorf("dial: %w", os.ErrPermission)); info.Verdict != retrypolicy.VerdictFail ||
		info.Kind != transport.Untrusted {
		t.Errorf("%+v", info)
	}
	if info := c(io.EOF); info != (retrypolicy.Info{}) {
		t.Errorf("%+v", info)
	}
	if info := c(retrypolicy.Permanent(os.ErrPermission)); info != (retrypolicy.Info{}) {
		t.Errorf("%+v", info)
	}
}

func TestOfKindIsTheJudgementOfTheFilter(t *testing.T) {
	for _, r := range errfilter.Rules() {
		got := retrypolicy.OfKind(r.Kind)
		if (got.Verdict == retrypolicy.VerdictAgain) != errfilter.OfKind(r.Kind).Retry ||
			got.Verdict == retrypolicy.VerdictUndecided ||
			got.Kind != r.Kind || got.Safe == retrypolicy.SafeNo {
			t.Errorf("%v: %+v", r.Kind, got)
		}
	}
}
