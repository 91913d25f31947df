package retrypolicy

// Reason says why there was no further attempt. It is itself an error, so that errors.Is(err,
// retrypolicy.OutOfAttempts) works on what Do returns.
type Reason uint8

const (
	// ByPolicy: the policy said no, without more.
	ByPolicy Reason = iota
	// NotRetryable: the failure is one that no repetition mends.
	NotRetryable
	// Unsafe: the outcome of the last attempt is unknown, and the operation must not happen twice.
	Unsafe
	// OutOfAttempts: the limit of attempts was reached.
	OutOfAttempts
	// OutOfTime: the time for all attempts was used up, or would be after the delay.
	OutOfTime
	// OutOfQuota: too many retries of late, by this and by other operations.
	OutOfQuota
	// ToldNotTo: the service asked not to be tried again, or for a longer wait than is allowed.
	ToldNotTo
	// Rejected: a gate refused the attempt.
	Rejected
	// PastDeadline: the delay would have ended after the context's deadline.
	PastDeadline
	// Cancelled: the context ended.
	Cancelled

	reasons // number of reasons
)

var reasonText = [reasons]string{
	ByPolicy:      "stopped by the retry policy",
	NotRetryable:  "not retryable",
	Unsafe:        "outcome unknown and not safe to repeat",
	OutOfAttempts: "out of attempts",
	OutOfTime:     "out of time",
	OutOfQuota:    "retry quota exceeded",
	ToldNotTo:     "the service asked not to retry",
	Rejected:      "rejected before the attempt",
	PastDeadline:  "deadline is before the next attempt",
	Cancelled:     "cancelled",
}

// Error returns the reason in a few words.
func (r Reason) Error() string { return r.String() }

// String returns the reason in a few words.
func (r Reason) String() string {
	if r >= reasons {
		return "undefined reason"
	}
	return reasonText[r]
}

func stop(r Reason) Decision { return Decision{Reason: r} }
