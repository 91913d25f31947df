package errchain_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/hubline-iot/hubline/internal/errchain"
)

// It also runs as a board's program, where Same is another function.
func TestSameTellsErrorVariablesApart(t *testing.T) {
	variables := []error{io.EOF, errors.New("EOF"), context.Canceled, context.DeadlineExceeded, nil}
	for i, err := range variables {
		for j, target := range variables {
			if errchain.Same(err, target) != (i == j) {
				t.Errorf("Same(%v, %v) is %v", err, target, i != j)
			}
			if target != nil && errchain.Has(errors.Join(io.ErrShortWrite, err), target) != (i == j) {
				t.Errorf("Has(%v, %v) is %v", err, target, i != j)
			}
		}
	}
	a, b := 1, 1
	if !errchain.Same(&a, &a) || errchain.Same(&a, &b) || errchain.Same(&a, io.EOF) {
		t.Error("Same does not tell pointers apart")
	}
}
