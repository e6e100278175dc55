"""What commands share: options, what a shell completes for them, and examples in help.

declared_options  options made from the dataclasses that declare them
shared_options    options of several commands, and what they stand for
completing        names that a shell completes
examples          the examples of a command
"""
