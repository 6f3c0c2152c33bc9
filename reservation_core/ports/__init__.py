"""What the use cases need from the world, as protocols. Adapters implement them; nothing here acts.

Nobody commits but the unit of work: `async with uow_factory() as uow:` is one transaction, committed when the block
ends without an exception and rolled back otherwise.
"""
