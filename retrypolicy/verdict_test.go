package retrypolicy_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

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

func TestVerdictsHaveNames(t *testing.T) {
	for v, want := range []string{"undecided", "again", "fail", "succeed", "undefined verdict"} {
		if got := retrypolicy.Verdict(v).String(); got != want {
			t.Errorf("verdict %d: %q, want %q", v, got, want)
		}
	}
}
