package retrypolicy

// Reason says why there was no further attempt. It is an error, so that errors.Is(err,
// retrypolicy.OutOfAttempts) works on an error of Do.
type Reason uint8

const (
	// ByPolicy: the policy stopped without giving another reason.
	ByPolicy Reason = iota
	// NotRetryable: a repetition would fail too.
	NotRetryable
	// Unsafe: the outcome of the last attempt is unknown, and the operation must not happen twice.
	Unsafe
	// OutOfAttempts: the limit of attempts was reached.
	OutOfAttempts
	// OutOfTime: the time for all attempts was used up, or would be after the delay.
	OutOfTime
	// OutOfQuota: this and other operations that share the quota made too many retries.
	OutOfQuota
	// Pushback: the service asked not to retry, or for a longer wait than allowed.
	Pushback
	// Rejected: a gate refused the attempt; see Gate.
	Rejected
	// PastDeadline: the delay would have ended after the context's deadline.
	PastDeadline
	// Cancelled: the context ended.
	Cancelled
	// NegativeDelay: the policy wanted a retry after a negative delay, which is a mistake in it.
	NegativeDelay

	reasons // number of reasons
)

var reasonText = [reasons]string{
	ByPolicy:      "stopped by the retry policy",
	NotRetryable:  "not retryable",
	Unsafe:        "outcome unknown and not safe to repeat",
	OutOfAttempts: "out of attempts",
	OutOfTime:     "out of time",
	OutOfQuota:    "retry quota exceeded",
	Pushback:      "the service asked not to retry",
	Rejected:      "rejected before the attempt",
	PastDeadline:  "deadline is before the next attempt",
	Cancelled:     "cancelled",
	NegativeDelay: "the retry policy returned a negative delay",
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
