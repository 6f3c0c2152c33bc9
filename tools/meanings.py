"""What stable codes mean, for the generated reference pages. A code without a meaning here fails the build."""

from reservation_core.domain.bookings.nouns import BookingReason
from reservation_core.domain.model import ReasonCode

JOB_REASONS: dict[ReasonCode, str] = {
    ReasonCode.SUBMITTED: "The job is accepted; the planner has not looked at it yet.",
    ReasonCode.WAITING_FOR_GPUS: "The job waits until enough GPUs are free.",
    ReasonCode.BEHIND_IN_LINE: "The job waits behind jobs that are ahead in the queue.",
    ReasonCode.NO_SUCH_TYPE: "No node has GPUs of the requested type.",
    ReasonCode.LARGER_THAN_ANY_NODE: "No node has as many GPUs as the job requests on one node.",
    ReasonCode.NOT_ENOUGH_NODES: "Fewer nodes than requested have enough GPUs.",
    ReasonCode.NODE_UNAVAILABLE: "Nodes that could run the job are not ready, cordoned or removed.",
    ReasonCode.REQUEUED: "The job is back in the queue after a start that failed.",
    ReasonCode.QUOTA_REACHED: "A quota of the job's user or project holds the job back.",
    ReasonCode.ALLOCATED: "The job has its GPUs; its pods start.",
    ReasonCode.RUNNING: "The job's pods run.",
    ReasonCode.COMPLETED: "The command ended with exit code 0.",
    ReasonCode.COMMAND_FAILED: "The command ended with another exit code.",
    ReasonCode.KILLED_BY_SIGNAL: "A signal ended the command.",
    ReasonCode.OUT_OF_MEMORY: "The command used more memory than its pod may have.",
    ReasonCode.CANCELLED_BY_USER: "The user cancelled the job.",
    ReasonCode.CANCELLED_BY_ADMIN: "An administrator cancelled the job.",
    ReasonCode.DURATION_REACHED: "The job ran for its whole duration.",
    ReasonCode.START_FAILED: "The cluster refused the job's pods or could not start them.",
    ReasonCode.START_TIMEOUT: "The pods did not run within the start allowance.",
    ReasonCode.UNSCHEDULABLE: "The cluster's scheduler found no place for a pod.",
    ReasonCode.IMAGE_PULL_FAILED: "The node could not pull the image.",
    ReasonCode.POD_LOST: "A pod no longer exists, and its end is unknown.",
    ReasonCode.POD_DELETED: "A pod was deleted from outside this server.",
    ReasonCode.EVICTED: "The cluster evicted a pod.",
    ReasonCode.NODE_LOST: "A node of the job is gone.",
    ReasonCode.MAINTENANCE: "A maintenance window needs the job's GPUs.",
    ReasonCode.BOOKING_OVER: "The booking that the job ran within is over.",
    ReasonCode.INACTIVE: "Nobody was connected to the session for as long as it may stay so.",
}

BOOKING_REASONS: dict[BookingReason, str] = {
    BookingReason.WAITING_FOR_SLOT: "The booking is on the waitlist.",
    BookingReason.OFFERED: "A slot is free and offered; it is kept until the offer expires.",
    BookingReason.BOOKED: "The booking is confirmed.",
    BookingReason.MOVED: "The booking has another time or other GPUs than before.",
    BookingReason.IN_SLOT: "The booked time has begun.",
    BookingReason.WORKLOAD_REFUSED: "The job that the booking should start was refused.",
    BookingReason.SLOT_OVER: "The booked time is over.",
    BookingReason.NOT_USED: "Nothing used the booking within the no-show grace.",
    BookingReason.WAITED_IN_VAIN: "No slot became free while the booking was on the waitlist.",
    BookingReason.OFFER_RAN_OUT: "The offer expired without an answer.",
    BookingReason.DECLINED: "The user declined the offer.",
    BookingReason.CANCELLED_BY_USER: "The user cancelled the booking.",
    BookingReason.CANCELLED_BY_ADMIN: "An administrator cancelled the booking.",
    BookingReason.MAINTENANCE: "A maintenance window needs the booking's GPUs.",
}
