"""Renews the served model from the event store: snapshot, challenger, judgement, promotion, rollback."""
