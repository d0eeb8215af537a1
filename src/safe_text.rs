//! Text from untrusted bytes, made safe to show: the only way by which such bytes reach a terminal or a report.
