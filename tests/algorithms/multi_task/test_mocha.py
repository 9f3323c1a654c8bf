from pfljax.conformance import Case, toy

SENT = (toy.LINEAR + 4, toy.LINEAR)
CONFORMANCE = [
    Case("mocha", bytes=SENT),
    Case("mocha", {"lam": 0.1, "period": 2}, bytes=SENT),
]
