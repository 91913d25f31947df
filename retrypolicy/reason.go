package retrypolicy

// Reason says why there was no further attempt. It is an error, so that errors.Is(err,
// retrypolicy.ReasonOutOfAttempts) works on an error of Do.
type Reason uint8

const (
	// ReasonPolicy: the policy stopped without giving another reason.
	ReasonPolicy Reason = iota
	// ReasonNotRetryable: a repetition would fail too.
	ReasonNotRetryable
	// ReasonUnsafe: the outcome of the last attempt is unknown, and the operation must not happen
	// twice.
	ReasonUnsafe
	// ReasonOutOfAttempts: the limit of attempts was reached.
	ReasonOutOfAttempts
	// ReasonOutOfTime: the time for all attempts was used up, or would be after the delay.
	ReasonOutOfTime
	// ReasonOutOfQuota: this and other operations that share the quota made too many retries.
	ReasonOutOfQuota
	// ReasonPushback: the service asked not to retry, or for a longer wait than allowed.
	ReasonPushback
	// ReasonRejected: the policy refused the attempt before it began; see Series.Admit.
	ReasonRejected
	// ReasonPastDeadline: the delay would have ended after the context's deadline.
	ReasonPastDeadline
	// ReasonCancelled: the context ended.
	ReasonCancelled
	// ReasonNegativeDelay: the policy wanted a retry after a negative delay, which is a mistake in it.
	ReasonNegativeDelay

	reasons // number of reasons

	// meant marks a retry whose short Delay is meant; see the function Decide.
	meant = reasons
)

var reasonText = [reasons]string{
	ReasonPolicy:        "stopped by the retry policy",
	ReasonNotRetryable:  "not retryable",
	ReasonUnsafe:        "outcome unknown and not safe to repeat",
	ReasonOutOfAttempts: "out of attempts",
	ReasonOutOfTime:     "out of time",
	ReasonOutOfQuota:    "retry quota exceeded",
	ReasonPushback:      "the service asked not to retry",
	ReasonRejected:      "rejected before the attempt",
	ReasonPastDeadline:  "deadline is before the next attempt",
	ReasonCancelled:     "cancelled",
	ReasonNegativeDelay: "the retry policy returned a negative delay",
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
