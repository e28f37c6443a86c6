"""What the steps of the bring-up do, in a measuring process: functions that take a StepContext and return rows."""
